"""Screen 2 of ``monarch tui``: a row for each rank, sorted by any column. `app` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from .._namedtuple import NamedTuple
from .pane import Pane
from .picture import Rank
from .sources import NowSource
from .text import Made, Row, duration, plain, size


class _Column(NamedTuple):
    title: str
    width: int
    most_first: bool = True


_COLUMNS = (
    _Column("rank", 22, False), _Column("state", 14), _Column("for", 7), _Column("queue", 6), _Column("handled", 9),
    _Column("memory", 9), _Column("cpu", 7), _Column("pid", 8, False), _Column("host", 20, False),
)  # fmt: skip
_FIGURES = {
    "for": "seconds", "queue": "queue", "handled": "handled", "memory": "rss", "cpu": "cpu", "pid": "pid",
}  # fmt: skip


class Ranks(Pane):
    """The place of the trouble."""

    TITLE = "Ranks"
    HINTS = "< > sort by  r reverse  Enter stack  l logs"
    HELP = (
        "All ranks of all meshes. Sorted by state, those that hold up others come first, then those"
        " that are least well.\n< and > choose the column to sort by, r turns the order around."
        " Enter shows the stack of the marked rank, l its logs."
    )
    BINDINGS = [
        ("less_than_sign", "sort(-1)", "Sort"),
        ("greater_than_sign", "sort(1)", "Sort"),
        ("r", "reverse", "Reverse"),
        ("l", "logs", "Logs"),
    ]

    def __init__(self, source: NowSource) -> None:
        super().__init__(source)
        self._picture = source.picture
        self._by = 1
        self._reversed = False
        self._order: list[Rank] = []

    def rows(self) -> tuple[Sequence[Row], Row]:
        column = _COLUMNS[self._by]
        falling = column.most_first != self._reversed
        self._order = sorted(self._picture.ranks(), key=self._key(column.title), reverse=falling)
        head = []
        for each in _COLUMNS:
            mark = ("▼" if falling else "▲") if each == column else ""
            head.append((_aligned(each, each.title + mark), "reverse" if each == column else ""))
        return Made(len(self._order), self._row), head

    def about(self) -> Any:
        return self._order[self.listing.cursor] if self.listing.cursor < len(self._order) else None

    def place_of(self, about: Any) -> int | None:
        return self._order.index(about) if self.listing.cursor and about in self._order else None

    def note(self) -> str:
        at = self.listing.cursor + 1 if self._order else 0
        return f"{at:,} of {len(self._order):,}"

    def choose(self) -> None:
        """Show where the marked rank stands."""
        if (rank := self.about()) is not None:
            self.dashboard.open("stacks", self._picture.name(rank))

    def action_logs(self) -> None:
        """Show the logs of the marked rank."""
        if (rank := self.about()) is not None:
            self.dashboard.open("logs", self._picture.name(rank))

    def action_sort(self, step: int) -> None:
        """Sort by the next column, or the one before."""
        self._by = (self._by + step) % len(_COLUMNS)
        self._reversed = False
        self.rebuild()

    def action_reverse(self) -> None:
        """Turn the order around."""
        self._reversed = not self._reversed
        self.rebuild()

    def _row(self, index: int) -> Row:
        rank, picture = self._order[index], self._picture
        mesh = picture.meshes[rank.uid]
        look = picture.look(mesh, rank.number)
        seconds, queue, handled, rss, cpu, pid = (
            picture.value(rank, name) for name in _FIGURES.values()
        )
        texts = (
            picture.name(rank), f"{look.letter} {picture.state(mesh, rank.number)}", duration(seconds), _count(queue),
            _count(handled), size(rss), duration(cpu), str(pid or ""), picture.host(rank),
        )  # fmt: skip
        styles = ("bold", look.style, "", "", "", "", "", "", "dim")
        return [
            (_aligned(column, text), style)
            for column, text, style in zip(_COLUMNS, texts, styles, strict=True)
        ]

    def _key(self, title: str) -> Any:
        picture = self._picture
        if title in _FIGURES:
            name = _FIGURES[title]
            return lambda rank: -1.0 if (value := picture.value(rank, name)) is None else value
        if title == "state":
            return lambda rank: picture.look(picture.meshes[rank.uid], rank.number).weight
        if title == "host":
            return picture.host
        return lambda rank: (picture.meshes[rank.uid]["name"], rank.number)


def _aligned(column: _Column, text: str) -> str:
    if column.title in _FIGURES:
        return " " * (column.width - cell_len(text)) + text + " "
    shown = plain(text)
    if cell_len(shown) >= column.width:
        shown = f"{set_cell_size(shown, column.width - 2)}…"
    return set_cell_size(shown, column.width) if column != _COLUMNS[-1] else f" {text}"


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"
