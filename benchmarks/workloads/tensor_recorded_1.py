"""Small operations on distributed tensors, recorded and replayed on 1 proc, per second; median of
five batches.
"""

from __future__ import annotations

from benchmarks.workloads import _tensors
from benchmarks.workloads._harness import Measured, Options, main


def measure(options: Options) -> Measured:
    return _tensors.measure_recorded(options, ranks=1)


if __name__ == "__main__":
    main(measure)
