"""A bounded table of values by coordinates, as text or HTML.

A value that cannot be shown does not spoil the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from reprlib import Repr

from monarch._core.shape.shape import Extent, Point

MAX_ROWS = 20
MAX_VALUE_WIDTH = 80


def as_text(title: str, extent: Extent, read: Callable[[int], object]) -> str:
    """A title line and a table with aligned columns, indented by two spaces.

    Args:
        title: the first line.
        extent: gives the rows, one per element, and a column per dimension.
        read: gives the value at a row-major position. An error of that is shown in place of the
            value.
    """
    rows = [[*extent.labels, "value"], *_rows(extent, read)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(extent))]
    lines = [title]
    for row in rows:
        *coordinates, value = row
        cells = [cell.rjust(width) for cell, width in zip(coordinates, widths, strict=True)]
        lines.append("  " + "  ".join([*cells, value]))
    return "\n".join(lines)


def as_html(title: str, extent: Extent, read: Callable[[int], object]) -> str:
    """The table of `as_text` as an HTML fragment in which titles, labels and values are escaped."""
    # Here, since it loads a table of all entity names, which only a notebook ever needs.
    from html import escape

    def line(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    head = line([*extent.labels, "value"], "th")
    body = "".join(line(row, "td") for row in _rows(extent, read))
    return f"<table><caption>{escape(title)}</caption><thead>{head}</thead><tbody>{body}</tbody></table>"


def _rows(extent: Extent, read: Callable[[int], object]) -> Iterator[list[str]]:
    count = extent.nelements
    if count <= MAX_ROWS:
        yield from (_row(rank, extent, read) for rank in range(count))
        return
    half = MAX_ROWS // 2
    yield from (_row(rank, extent, read) for rank in range(half))
    yield [*(["..."] * len(extent)), f"... {count - 2 * half} more"]
    yield from (_row(rank, extent, read) for rank in range(count - half, count))


def _row(rank: int, extent: Extent, read: Callable[[int], object]) -> list[str]:
    return [*map(str, Point(rank, extent).values()), _show(rank, read)]


def _show(rank: int, read: Callable[[int], object]) -> str:
    try:
        text = _short.repr(read(rank))
    except Exception as error:
        text = f"<cannot be shown: {_short.repr(error)}>"
    text = " ".join(text.split())
    return text if len(text) <= MAX_VALUE_WIDTH else text[: MAX_VALUE_WIDTH - 3] + "..."


class _Short(Repr):
    """Cuts before formatting where it can: the plain repr of a large value may take seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = self.maxlong = MAX_VALUE_WIDTH
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = (
            self.maxdeque
        ) = 12

    def repr_bytes(self, value: bytes, level: int) -> str:
        if len(value) <= MAX_VALUE_WIDTH:
            return repr(value)
        return f"{value[:16]!r}... ({len(value)} bytes)"

    repr_bytearray = repr_bytes


_short = _Short()
