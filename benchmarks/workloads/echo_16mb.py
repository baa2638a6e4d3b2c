"""16 MiB to an actor in another process and back, every page of the result read; p50 in ms."""

from __future__ import annotations

from benchmarks.workloads._harness import Measured, Options, main
from benchmarks.workloads._payload import measure_echo


def measure(options: Options) -> Measured:
    return measure_echo(options, 16, count=30)


if __name__ == "__main__":
    main(measure)
