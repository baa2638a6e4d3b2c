"""How sessions are shown: pure functions from rows to text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .._words import duration, named, ranges
from .protocol import Row

HEADINGS = ("Actor Name", "Rank", "Coords", "Hostname", "Function", "Line No.", "State", "Attached")


def table(rows: Sequence[Row]) -> str:
    """The sessions as a grid."""
    cells = [HEADINGS, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def rule(sign: str) -> str:
        return "+" + "+".join(sign * (width + 2) for width in widths) + "+"

    lines = [rule("-")]
    for index, row in enumerate(cells):
        inner = "|".join(f" {cell.ljust(width)} " for cell, width in zip(row, widths, strict=True))
        lines += [f"|{inner}|", rule("-" if index else "=")]
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    line = row.place.line
    state = (
        f"{('in an editor' if row.in_editor else 'stopped') if row.stopped else 'running'}"
        f" {duration(row.since)}"
    )
    coordinates = ", ".join(f"{name}={index}" for name, index in row.who.coordinates.items())
    who = row.who
    cells = (who.name, row.label, coordinates, who.host, line.function, str(line.number), state)
    return tuple(map(named, (*cells, row.driver)))


def stacks(rows: Iterable[Row]) -> str:
    """The stacks of all that have stopped, equal ones once; most ranks first."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        if row.stopped:
            groups.setdefault((row.who.name, row.place.stack), []).append(row)
    parts = []
    for group in sorted(groups.values(), key=len, reverse=True):
        lines = [f"{len(group)} {'rank' if len(group) == 1 else 'ranks'}: {who(group)}"]
        for line in group[0].place.stack:
            lines.append(f"  {line.file}:{line.number} in {line.function}()")
            if line.source:
                lines.append(f"    {line.source}")
        parts.append("\n".join(map(named, lines)))
    return "\n\n".join(parts)


def grouped_ranks(rows: Iterable[Row]) -> list[list[Row]]:
    """Group the ranks of an actor mesh that have stopped at the same line, for the same reason."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        line = row.place.line
        groups.setdefault((row.who.name, row.place.why, line.file, line.number), []).append(row)
    return list(groups.values())


def who(group: Sequence[Row]) -> str:
    """Name and ranks of rows of one name: ``trainer 0-3,7``."""
    return f"{group[0].who.name} {ranges(row.who.rank for row in group)}"
