"""How the time of one `call` grows with the number of procs: `python -m benchmarks.growth`, from
the repository's root.

Over 1, 2, 4, ... procs on this machine: the median of many calls, and what a proc adds. The calls
of all sizes take turns, so that a busy hour of the machine is shared by all of them. Prints a
table; `--json` and `--plot` write files.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import machine, report
from benchmarks.progress import Progress
from benchmarks.workloads._harness import time_each
from monarch.actor import Actor, endpoint, this_host

ROUNDS = 5


class Echo(Actor):
    @endpoint
    def echo(self, value: int) -> int:
        return value


class Size(NamedTuple):
    """One point of the curve: µs of a call to so many procs."""

    procs: int
    us: float

    @property
    def each(self) -> float:
        return self.us / self.procs


def measure(most: int, calls: int, progress: Progress) -> list[Size]:
    sizes = [2**power for power in range(most.bit_length()) if 2**power <= most]
    procs = this_host().spawn_procs(per_host={"procs": sizes[-1]})
    actors = procs.spawn("echo", Echo)
    actors.echo.call(1).get()
    seconds: dict[int, list[float]] = {size: [] for size in sizes}
    for number in range(ROUNDS):
        for size in sizes:
            progress.status(f"round {number + 1}, {size} procs")
            some: Any = actors.slice(procs=slice(0, size))
            seconds[size] += time_each(partial(_call, some.echo), max(10, calls // size))
    procs.stop().get()
    return [Size(size, statistics.median(times) * 1e6) for size, times in seconds.items()]


def _call(echo: Any) -> None:
    echo.call(1).get()


def slope(sizes: Sequence[Size]) -> float:
    """µs that each further proc adds: the straight line of least squares over the larger half of
    the sizes.
    """
    points = sizes[len(sizes) // 2 :] if len(sizes) > 3 else sizes
    return statistics.linear_regression([p.procs for p in points], [p.us for p in points]).slope


def draw(sizes: Sequence[Size], path: Path) -> None:
    """Write the plot.

    Raises:
        ModuleNotFoundError: matplotlib isn't installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    procs = [size.procs for size in sizes]
    axes.loglog(procs, [size.us for size in sizes], marker="o", color="#2a6f97", label="one call")
    axes.loglog(procs, [size.each for size in sizes], marker="o", color="#e09f3e", label="per proc")
    axes.set_xticks(procs, [str(count) for count in procs])
    axes.set_xlabel("procs")
    axes.set_ylabel("µs, median")
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.legend()
    figure.suptitle(
        f"call() over many procs on one machine: {slope(sizes):.1f} µs per further proc"
    )
    figure.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description="The cost of a call per proc."
    )
    parser.add_argument(
        "--most", type=int, default=256, help="procs of the largest mesh (default 256)"
    )
    parser.add_argument(
        "--calls", type=int, default=400, help="procs called per size and round (default 400)"
    )
    parser.add_argument("--json", type=Path, help="write the numbers")
    parser.add_argument("--plot", type=Path, help="draw the curve; needs matplotlib")
    options = parser.parse_args(arguments)
    if options.most < 2:
        parser.error("--most must be at least 2: one size has no growth")
    sizes = measure(options.most, options.calls, Progress())
    rows = [
        ["procs", "µs", "µs per proc"],
        *([str(size.procs), f"{size.us:.0f}", f"{size.each:.1f}"] for size in sizes),
    ]
    print(report.align(rows, right={0, 1, 2}))
    print(f"each further proc adds {slope(sizes):.1f} µs")
    if options.json is not None:
        document = {
            "machine": machine.describe(),
            "us": {size.procs: size.us for size in sizes},
            "slope": slope(sizes),
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if options.plot is not None:
        draw(sizes, options.plot)
    return 0


if __name__ == "__main__":
    from benchmarks import growth  # so that procs find the actor's class by its module

    sys.exit(growth.main())
