"""64 processes that use torch, from nothing to the first answer of each; their memory stands beside
that.
"""

from __future__ import annotations

from benchmarks.workloads._harness import Measured, Options, main
from benchmarks.workloads._spawn import measure_spawn


def measure(options: Options) -> Measured:
    return measure_spawn(options, 64, torch=True)


if __name__ == "__main__":
    main(measure)
