"""What every workload shares: its options, its clock, and the one line that it prints.

Standard library only, and nothing of `monarch`: a workload must measure the package and not this
file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PAYLOADS = ("torch", "numpy", "bytes")


@dataclass(frozen=True)
class Options:
    """The knobs of one execution.

    `scale` multiplies operation counts; `payload` is the type of a large argument.
    """

    scale: float = 1.0
    payload: str = "bytes"

    def count(self, full: int, least: int = 1) -> int:
        """The number of operations to do where a full run does `full`."""
        return max(least, round(full * self.scale))


@dataclass(frozen=True)
class Measured:
    """The value that a workload is about, and more numbers from the same execution."""

    value: float
    unit: str
    extra: Mapping[str, float | str] = field(default_factory=dict)


def time_each(operation: Callable[[], object], count: int) -> list[float]:
    """Seconds that each of `count` executions took."""
    clock = time.perf_counter
    seconds = []
    for _ in range(count):
        start = clock()
        operation()
        seconds.append(clock() - start)
    return seconds


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that at least `percent` of all samples do not exceed (nearest rank)."""
    ordered = sorted(samples)
    position = -(-len(ordered) * percent // 100)  # a ceiling without a float's rounding
    return ordered[max(0, int(position) - 1)]


def latency(seconds: Sequence[float], unit: str = "µs") -> Measured:
    """The median of single operations, with the tail beside it."""
    per_second = {"µs": 1e6, "ms": 1e3, "s": 1.0}[unit]
    tail = {f"p{percent}": percentile(seconds, percent) * per_second for percent in (90, 99)}
    extra = {"mean": statistics.fmean(seconds) * per_second, **tail, "operations": len(seconds)}
    return Measured(statistics.median(seconds) * per_second, unit, extra)


def rate(operations: int, seconds: Sequence[float]) -> Measured:
    """Operations per second, from the median of several batches of `operations`."""
    return Measured(
        operations / statistics.median(seconds),
        "/s",
        {"operations": operations, "batches": len(seconds)},
    )


def main(measure: Callable[[Options], Measured]) -> None:
    """Run a workload as a program.

    `finished_at` is the system-wide monotonic clock, so the parent can tell how long the
    interpreter then took to end.
    """
    parser = argparse.ArgumentParser(description="One benchmark workload; prints one JSON line.")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="multiply operation counts (default 1.0)"
    )
    parser.add_argument(
        "--payload", choices=PAYLOADS, default="bytes", help="type of large arguments"
    )
    arguments = parser.parse_args()
    measured = measure(Options(arguments.scale, arguments.payload))
    line = {
        "workload": Path(sys.argv[0]).stem,
        "value": measured.value,
        "unit": measured.unit,
        "extra": dict(measured.extra),
        "finished_at": time.monotonic(),
    }
    print(json.dumps(line, ensure_ascii=False), flush=True)
