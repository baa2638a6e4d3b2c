"""As `job_reuse`, on three nodes of a Slurm on this machine: three workers that listen on TCP, a
proc on each, one call to all.
"""

from __future__ import annotations

from benchmarks.workloads._clusters import reuse, slurm
from benchmarks.workloads._harness import Measured, Options, main


def measure(options: Options) -> Measured:
    with slurm():
        return reuse("job.SlurmJob({'hosts': 3})", options.count(5))


if __name__ == "__main__":
    main(measure)
