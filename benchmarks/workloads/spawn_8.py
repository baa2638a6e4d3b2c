"""Eight processes, from nothing to the first answer of each; their memory and the time to stop them
stand beside that.
"""

from __future__ import annotations

from benchmarks.workloads._harness import Measured, Options, main
from benchmarks.workloads._spawn import measure_spawn


def measure(options: Options) -> Measured:
    return measure_spawn(options, 8)


if __name__ == "__main__":
    main(measure)
