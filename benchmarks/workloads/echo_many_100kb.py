"""100 arrays of some 100 KiB in one message, 10 MiB in all, there and back; p50 in ms."""

from __future__ import annotations

from benchmarks.workloads._harness import Measured, Options, main
from benchmarks.workloads._payload import measure_echo


def measure(options: Options) -> Measured:
    return measure_echo(options, 10, count=30, parts=100)


if __name__ == "__main__":
    main(measure)
