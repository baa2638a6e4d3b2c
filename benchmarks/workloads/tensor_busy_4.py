"""The size of a matrix product from which 4 procs are kept busy."""

from __future__ import annotations

from benchmarks.workloads import _tensors
from benchmarks.workloads._harness import Measured, Options, main


def measure(options: Options) -> Measured:
    return _tensors.measure_busy(options, ranks=4)


if __name__ == "__main__":
    main(measure)
