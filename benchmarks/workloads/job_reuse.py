"""From the start of a client to its first answer, on the hosts of a job that runs already: one
worker process, one proc, one call.
"""

from __future__ import annotations

from benchmarks.workloads._clusters import reuse
from benchmarks.workloads._harness import Measured, Options, main


def measure(options: Options) -> Measured:
    return reuse("job.ProcessJob({'hosts': 1})", options.count(5))


if __name__ == "__main__":
    main(measure)
