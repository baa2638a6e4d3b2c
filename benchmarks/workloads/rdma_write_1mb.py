"""1 MiB written to the memory of an actor in another process: one transfer, p50 in ms."""

from __future__ import annotations

from benchmarks.workloads import _rdma
from benchmarks.workloads._harness import Measured, Options, main

MIB = 1


def measure(options: Options) -> Measured:
    return _rdma.measure(options, MIB << 20, "write", times=200)


if __name__ == "__main__":
    main(measure)
