"""Text as a terminal may show it, and figures as people read them. Pure."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import overload

from rich.cells import cell_len, chop_cells

from .. import _words
from .._words import tame

Piece = tuple[str, str]
"""A text, and its style as Rich has it: ``bold red``; empty for none."""
Row = Sequence[Piece]
"""A line on the screen."""


def looking() -> Row:
    """The line where nothing has come yet."""
    return [("looking ...", "dim")]


class Made(Sequence[Row]):
    """Lines that are made when they are looked at.

    Args:
        count: How many.
        make: One, by its number.
    """

    def __init__(self, count: int, make: Callable[[int], Row]) -> None:
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [*map(self._make, range(*index.indices(self._count)))]
        return self._make(index)


_MOST = 4000  # characters of a piece: no terminal is wider, and a line of a log may have a million


def plain(text: str) -> str:
    """One line without anything that a terminal would obey.

    That is escape sequences, control characters and changes of direction.
    """
    if len(text) <= _MOST and text.isascii() and text.isprintable():
        return text
    tamed = tame(text[:_MOST], False).replace("\t", "    ").replace("\n", "⏎")
    # halves of surrogate pairs, which no terminal takes
    return tamed.encode(errors="replace").decode()


def wrapped(text: str, width: int, style: str = "", indent: str = "") -> Iterator[Row]:
    """A text of several lines, none of them wider.

    Args:
        text: It.
        width: Columns.
        style: Of all of it.
        indent: What stands in front of each line.
    """
    for line in text.splitlines() or [""]:
        for part in textwrap.wrap(plain(line), max(20, width - len(indent))) or [""]:
            yield [(indent + part, style)]


def folded(row: Row, width: int) -> Iterator[Row]:
    """The lines, none of them wider, that a line becomes; all but the first are indented."""
    line, room = list[Piece](), width
    for text, style in row:
        left = plain(text)
        while cell_len(left) > room:
            part = chop_cells(left, room)[0] if room > 1 else ""
            if not left[len(part) :].startswith(" "):  # else a word ends there
                part = part[: part.rfind(" ") + 1] or part
            yield [*line, (part, style)]
            left, line, room = left[len(part) :].removeprefix(" "), [("    ", "")], width - 4
        line, room = [*line, (left, style)], room - cell_len(left)
    yield line


def duration(seconds: float | None) -> str:
    """A time: ``0.4 s``, ``43 s``, ``12 min``, ``3 h``, ``2 d``; empty if it is not known."""
    if seconds is None:
        return ""
    return f"{max(0.0, seconds):.1f} s" if seconds < 10 else _words.duration(seconds)


def ago(microseconds: float) -> str:
    """How long a time is past, which is given since 1970: ``43 s ago``."""
    return f"{duration(time.time() - microseconds / 1e6)} ago"


def size(number: float | None) -> str:
    """Bytes: ``512 B``, ``25.0 MB``, ``3.1 GB``; empty if it is not known."""
    if number is None:
        return ""
    for factor, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number:.0f} B"
