"""A small tensor fetched from 1 proc: one fetch at a time, p50."""

from __future__ import annotations

from benchmarks.workloads import _tensors
from benchmarks.workloads._harness import Measured, Options, main


def measure(options: Options) -> Measured:
    return _tensors.measure_fetch(options, ranks=1)


if __name__ == "__main__":
    main(measure)
