"""The plot of a row: for each quantity a bar for each contender's median, and a dot for each round.

Needs matplotlib.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.end_to_end.contenders import OURS, Found, Row
from benchmarks.plot import BETTER, TEXT
from benchmarks.report import number

OTHERS = "#adb5bd"


def draw(row: Row, found: Found, path: Path) -> None:
    """Write the plot; the suffix of `path` chooses the format. Who failed is left out.

    Raises:
        ModuleNotFoundError: matplotlib isn't installed.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [
        name for name in reversed(found.rounds) if found.rounds[name] and name not in found.errors
    ]
    height = 0.6 + len(row.quantities) * (0.7 + 0.4 * len(names))
    figure = Figure(figsize=(9, height), layout="constrained")
    FigureCanvasAgg(figure)
    plots = figure.subplots(len(row.quantities), squeeze=False)[:, 0]
    for axes, (title, quantity) in zip(plots, row.quantities.items(), strict=True):
        for position, name in enumerate(names):
            if not (samples := found.samples(name, title)):
                continue  # a quantity that it does not have
            middle = statistics.median(samples)
            axes.barh(position, middle, height=0.55, color=BETTER if name == OURS else OTHERS)
            axes.plot(samples, [position] * len(samples), ".", color=TEXT, markersize=4)
            label = f"  {number(middle)} {quantity.unit}"
            axes.text(max(samples), position, label, va="center", fontsize=9, color=TEXT)
        axes.set_yticks(range(len(names)), names, fontsize=9)
        axes.margins(x=0.2)
        axes.set_xlim(left=0)
        axes.set_xlabel(f"{title}, {quantity.unit}; {quantity.better} is better", fontsize=9)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
    figure.suptitle(row.title, fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
