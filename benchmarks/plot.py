"""The plot: one horizontal bar per workload, how many times better than the other, on a log scale.

Needs matplotlib.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import number, short_names, times
from benchmarks.results import Report, Row
from benchmarks.targets import TARGETS

BETTER, WORSE, MUST, TEXT = "#2a6f97", "#bc4749", "#e09f3e", "#333333"
ROOM_FOR_LABELS = 12  # the axis ends at this many times the longest bar


def draw(report: Report, path: Path) -> None:
    """Write the plot; the suffix of `path` chooses the format.

    Raises:
        ModuleNotFoundError: matplotlib isn't installed.
        ValueError: no row has a ratio.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    rows = [(row, row.ratio) for row in reversed(report.rows)]
    bars = [(row, ratio) for row, ratio in rows if ratio is not None]
    if not bars:
        raise ValueError("there is nothing to plot: no workload has a value on both sides")
    figure = Figure(figsize=(10, 1.6 + 0.5 * len(bars)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    positions = range(len(bars))
    axes.barh(
        positions,
        [ratio - 1 for _, ratio in bars],
        left=1,
        height=0.55,
        color=[_colour(r) for _, r in bars],
    )
    for position, (row, ratio) in enumerate(bars):
        target = TARGETS.get(row.name)
        if row.judged and target is not None:
            axes.plot(
                [target.must] * 2, [position - 0.38, position + 0.38], color=MUST, linewidth=2.5
            )
        axes.text(max(ratio, 1) * 1.08, position, _label(row), va="center", fontsize=9, color=TEXT)
    axes.tick_params(axis="y", length=0)
    axes.set_yticks(list(positions), [row.title for row, _ in bars], fontsize=9)
    axes.set_xscale("log")
    ratios = [ratio for _, ratio in bars]
    axes.set_xlim(min(0.8, *ratios), max(2.0, *ratios) * ROOM_FOR_LABELS)
    axes.axvline(1, color=TEXT, linewidth=1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axes.grid(axis="x", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    marked = "; orange: the least we promise" if any(row.judged for row, _ in bars) else ""
    axes.set_xlabel(f"times better, log scale{marked}", fontsize=9)
    figure.suptitle(" against ".join(short_names(report)), fontsize=12)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _colour(ratio: float) -> str:
    return BETTER if ratio >= 1 else WORSE


def _label(row: Row) -> str:
    other = row.other.value if row.other else None
    return f"{times(row.ratio)}   {number(row.this.value)} vs {number(other)} {row.unit}"
