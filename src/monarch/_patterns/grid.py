"""A drawing of a mesh: two dimensions as rows and columns, more of them as titled blocks.

The text and the HTML of meshes in a terminal and a notebook come from here. A part that does not
fit is left out in the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from .._core.shape import Extent, Slice
from .._words import aligned

MOST_ROWS = 20
MOST_COLUMNS = 8
"""Of columns, and of the blocks of each further dimension."""

_EDGE = 3  # of a dimension with more, so many are shown at either end
_GAP = "..."

Block = tuple[str, list[list[str]]]  # a title, and rows of cells, of which the first are headings


def draw(title: str, extent: Extent, cell: Callable[[int], str], html: bool) -> str:
    """Draw a mesh, as text or HTML; the arguments are those of `as_text`."""
    return (as_html if html else as_text)(title, extent, cell)


def as_text(title: str, extent: Extent, cell: Callable[[int], str]) -> str:
    """A title line and the grid, indented by two spaces.

    Args:
        title: The first line.
        extent: Of the mesh: the last two dimensions are rows and columns; a single one is rows.
        cell: Gives the text at a row-major position.
    """
    lines = [title]
    for heading, rows in _blocks(extent, cell):
        if heading:
            lines.append(f"  {heading}")
        # a mesh without dimensions has no headings
        lines += [f"  {line}" for line in aligned(rows) if line]
    return "\n".join(lines)


def as_html(title: str, extent: Extent, cell: Callable[[int], str]) -> str:
    """Return the grid as an HTML fragment: a table for each block, with all texts escaped."""
    # Here, since it loads a table of all entity names, which only a notebook ever needs.
    from html import escape

    def line(row: Sequence[str], tag: str) -> str:
        first, *others = map(escape, row)
        return (
            f"<tr><th>{first}</th>" + "".join(f"<{tag}>{text}</{tag}>" for text in others) + "</tr>"
        )

    tables = [f"<div>{escape(title)}</div>"]
    for heading, (head, *rows) in _blocks(extent, cell):
        body = "".join(line(row, "td") for row in rows)
        tables.append(
            f"<table><caption>{escape(heading)}</caption><thead>{line(head, 'th')}</thead><tbody>{body}</tbody></table>"
        )
    return "".join(tables)


def _blocks(extent: Extent, cell: Callable[[int], str]) -> Iterator[Block]:
    labels, sizes = [*extent.labels], [*extent.sizes]
    if len(sizes) < 2:  # of rows alone, or of one element
        labels, sizes = [*(labels or [""]), ""], [*(sizes or [1]), 1]
    *outer, row_label, column_label = labels
    *outer_sizes, row_count, column_count = sizes
    rows, columns = _shown(row_count, MOST_ROWS), _shown(column_count, MOST_COLUMNS)
    corner = f"{row_label}\\{column_label}" if column_label else row_label
    head = [corner, *("" if not column_label else _heading(column) for column in columns)]
    outer_ranks = Slice.new_row_major(outer_sizes)
    for coordinates in product(*(_shown(size, MOST_COLUMNS) for size in outer_sizes)):
        if None in coordinates:
            title = ", ".join(
                f"{label}={_heading(at)}" for label, at in zip(outer, coordinates, strict=True)
            )
            yield title, [[_GAP]]
            continue
        title = ", ".join(f"{label}={at}" for label, at in zip(outer, coordinates, strict=True))
        first = outer_ranks.nditem([at or 0 for at in coordinates]) * row_count * column_count
        body = (_row(row, columns, first, column_count, bool(row_label), cell) for row in rows)
        yield title, [head, *body]


def _row(
    row: int | None,
    columns: list[int | None],
    first: int,
    width: int,
    labelled: bool,
    cell: Callable[[int], str],
) -> list[str]:
    if row is None:
        return [_GAP, *(_GAP for _ in columns)]
    cells = (_GAP if column is None else cell(first + row * width + column) for column in columns)
    return [str(row) if labelled else "", *cells]


def _shown(size: int, most: int) -> list[int | None]:
    """Which indices are shown; None stands for those in between."""
    if size <= most:
        return [*range(size)]
    return [*range(_EDGE), None, *range(size - _EDGE, size)]


def _heading(index: int | None) -> str:
    return _GAP if index is None else str(index)
