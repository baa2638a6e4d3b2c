"""A report as text: the terminal's table, the markdown of the pages, and the blocks that hold it."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence

from benchmarks.catalog import FLOOR_WORKLOAD
from benchmarks.results import Report, Row, Side
from benchmarks.targets import REFERENCE, TARGETS, describe_should

BEGIN = "<!-- benchmarks:begin -->"
END = "<!-- benchmarks:end -->"
NOTHING = "-"
BESIDE = {
    "copy": "a copy within a process",
    "nixl": "nixl by hand",
    "torch": "bare torch.distributed",
    "eager": "eager torch in one process",
}
"""By the name among a row's extras: what it is called.

A ratio above 1x says that it takes longer than the row's own.
"""
NUMBERS = {2, 3, 4, 5, 6}  # the columns of the terminal's table that are aligned right


def number(value: float | None) -> str:
    """Three significant digits and no exponent: 0.0123, 4.56, 78.9, 12,300."""
    if value is None:
        return NOTHING
    if value == 0:
        return "0"
    digits = 0
    while abs(value) * 10**digits < 100 and digits < 6:
        digits += 1
    rounded = round(value, digits) if abs(value) < 1000 else float(f"{value:.3g}")
    return f"{rounded:,.{digits}f}"


def times(ratio: float | None) -> str:
    """A ratio as text: two decimals below ten, because targets are close to each other there."""
    if ratio is None:
        return NOTHING
    return f"{ratio:.2f}x" if ratio < 10 else f"{number(ratio)}x"


def table(report: Report) -> str:
    """The table for a terminal, then what failed and on which machine it ran."""
    header = ["workload", "unit", "floor", "this", "other", "ratio", "must", "should", "verdict"]
    floor = ["floor", FLOOR_WORKLOAD.unit, number(report.floor.value), *[NOTHING] * 6]
    lines = [align([header, floor, *(_cells(row) for row in report.rows)], NUMBERS), ""]
    lines += [
        *_beside(report),
        f"this:  {report.this}",
        f"other: {report.other or 'none'}",
        machine_line(report),
    ]
    failures = list(_failures(report))
    return "\n".join(lines + (["", *failures] if failures else []))


def align(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Columns padded to their widest cell, those in `right` on the left side, with a rule under the
    first row.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    rule = ["-" * width for width in widths]
    return "\n".join(_line(row, widths, right) for row in [rows[0], rule, *rows[1:]])


def markdown(report: Report, image: str | None = None) -> str:
    """The table for a page. `image` is the path of the plot, as the page sees it."""
    names = short_names(report)
    header = ["workload", "unit", *names, "ratio", "must", "should", "verdict"]
    lines = [_plot(report, image), ""] if image else []
    lines += [_pipes(header), _pipes(["---"] * 2 + ["---:"] * 3 + ["---"] * 3)]
    lines += [_pipes([row.title, *_markdown_cells(row)]) for row in report.rows]
    floor = f"{number(report.floor.value)} {FLOOR_WORKLOAD.unit}"
    lines += [
        "",
        *_beside_items(report),
        f"Floor ({FLOOR_WORKLOAD.title}): {floor}.",
        machine_line(report),
    ]
    failures = [f"- {failure}" for failure in _failures(report)]
    return "\n".join([*lines, *(["", *failures] if failures else [])])


def summary(reports: Sequence[Report], image: str) -> str:
    """The plot, and how many times better the rows of all reports are, in a line."""
    ratios = [row.ratio for each in reports for row in each.rows if row.ratio is not None]
    ahead = sum(ratio > 1 for ratio in ratios)
    won = f"Ahead in {ahead} of {len(ratios)} rows, by {times(min(ratios))} to {times(max(ratios))}"
    median = f"median {times(statistics.median(ratios))}"
    return f"{_plot(reports[0], image)}\n\n{won}, {median}. {machine_line(reports[0])}"


def _plot(report: Report, image: str) -> str:
    return f"![{' against '.join(short_names(report))}]({image})"


def update_block(text: str, block: str, begin: str = BEGIN, end: str = END) -> str:
    """`text` with what is between the two markers replaced by `block`.

    Raises:
        ValueError: a marker is missing, is there twice, or the end comes first.
    """
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(
            f"wanted {begin} and {end} once each, got {text.count(begin)} and {text.count(end)}"
        )
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise ValueError(f"{end} comes before {begin}")
    return f"{before}{begin}\n{block.strip()}\n{end}{after}"


def machine_line(report: Report) -> str:
    """One sentence on where, when and how the numbers were measured."""
    machine = report.machine
    hardware = (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB,"
        f" {machine['kernel']}"
    )
    plural = "s" if report.rounds > 1 else ""
    scale = "" if report.scale == 1 else f", scale {report.scale:g} (a quick run, not judged)"
    return (
        f"Measured on {report.date[:10]} on {hardware}; median of {report.rounds}"
        f" round{plural}{scale}."
    )


def _line(row: Sequence[str], widths: Sequence[int], right: Collection[int]) -> str:
    pairs = enumerate(zip(row, widths, strict=True))
    cells = [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in pairs
    ]
    return "  ".join(cells).rstrip()


def _side(side: Side | None) -> str:
    if side is None:
        return NOTHING
    return "failed" if side.error is not None else number(side.value)


def _promises(row: Row) -> list[str]:
    target = TARGETS.get(row.name)
    return (
        [f"{target.must:g}x", describe_should(target, row.unit)] if target else [NOTHING, NOTHING]
    )


def _cells(row: Row) -> list[str]:
    measured = [number(row.floor), _side(row.this), _side(row.other), times(row.ratio)]
    return [row.name, row.unit, *measured, *_promises(row), row.verdict]


def _markdown_cells(row: Row) -> list[str]:
    return [
        row.unit,
        _side(row.this),
        _side(row.other),
        times(row.ratio),
        *_promises(row),
        row.verdict,
    ]


def _beside(report: Report) -> list[str]:
    """What rows measured for comparison with other ways to do the same, in the same processes of
    this environment.
    """
    lines = []
    for row in report.rows:
        found = [(name, float(row.this.extra[name])) for name in BESIDE if name in row.this.extra]
        value = row.this.value
        if found and value is not None:
            told = [
                f"{BESIDE[name]} {number(other)} {row.unit} ({times(other / value)})"
                for name, other in found
            ]
            lines.append(f"{row.name}: {', '.join(told)}")
    return [*lines, ""] if lines else []


def _beside_items(report: Report) -> list[str]:
    return [f"- {line}" if line else line for line in _beside(report)]


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _failures(report: Report) -> list[str]:
    sides = [
        (row.name, name, side)
        for row in report.rows
        for name, side in (("this", row.this), ("other", row.other))
    ]
    failed = [
        (name, which, side.error)
        for name, which, side in sides
        if side is not None and side.error is not None
    ]
    lines = [f"{name}, {which}: {error}" for name, which, error in failed]
    if report.floor.error is not None:
        lines.insert(0, f"floor: {report.floor.error}")
    return lines


def short_names(report: Report) -> tuple[str, str]:
    """The two packages without their Pythons."""
    return report.this.partition(", ")[0], (report.other or "other").partition(", ")[0]


def reference_note(report: Report) -> str | None:
    """Why there are no verdicts, where that is so."""
    if report.rows and not any(row.judged for row in report.rows):
        return f"No verdicts: targets hold for a full-scale run against {REFERENCE}."
    return None
