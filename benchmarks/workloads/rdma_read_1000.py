"""1,000 buffers of 4 KiB each, read from an actor in another process in one action: p50 in ms."""

from __future__ import annotations

from benchmarks.workloads import _rdma
from benchmarks.workloads._harness import Measured, Options, main

BUFFERS = 1000


def measure(options: Options) -> Measured:
    return _rdma.measure(options, _rdma.SMALL, "read", times=30, buffers=BUFFERS)


if __name__ == "__main__":
    main(measure)
