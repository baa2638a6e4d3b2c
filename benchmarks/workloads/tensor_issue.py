"""What a small operation costs the controller, median of five batches; beside it plain torch."""

from __future__ import annotations

from benchmarks.workloads import _tensors
from benchmarks.workloads._harness import Measured, Options, main


def measure(options: Options) -> Measured:
    return _tensors.measure_issue(options)


if __name__ == "__main__":
    main(measure)
