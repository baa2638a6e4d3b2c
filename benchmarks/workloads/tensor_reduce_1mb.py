"""All-reduce of 1 MiB in place over 2 procs, median of five batches; beside it bare
torch.distributed.
"""

from __future__ import annotations

from benchmarks.workloads import _tensors
from benchmarks.workloads._harness import Measured, Options, main


def measure(options: Options) -> Measured:
    return _tensors.measure_reduce(options, mib=1, ranks=2)


if __name__ == "__main__":
    main(measure)
