"""4 KiB read from the memory of an actor in another process: one transfer, p50 in µs."""

from __future__ import annotations

from benchmarks.workloads import _rdma
from benchmarks.workloads._harness import Measured, Options, main


def measure(options: Options) -> Measured:
    return _rdma.measure(options, _rdma.SMALL, "read", times=1000, unit="µs")


if __name__ == "__main__":
    main(measure)
