"""Screen 8: a question in SQL, and its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.widget import Widget
from textual.widgets import Input

from .http import Line
from .pane import Pane
from .text import Made, Row, plain, wrapped

SAVED = {
    "which tables there are": "SHOW TABLES",
    "the longest queues": "SELECT name, rank, queue_depth, handled FROM actors ORDER BY queue_depth DESC LIMIT 20",
    "who handles what, and since when": "SELECT name, rank, endpoint, since_us FROM actors WHERE endpoint IS NOT NULL ORDER BY since_us",
    "memory by mesh": "SELECT mesh, count(*) AS ranks, max(rss_bytes) AS most, sum(rss_bytes) AS total FROM procs GROUP BY mesh",
    "processes that have ended": "SELECT mesh, rank, exit_code, signal, reason FROM procs WHERE state = 'ended'",
    "who waits for whom": "SELECT * FROM waits",
    "hosts": "SELECT * FROM hosts",
    "GPUs": "SELECT * FROM gpus",
}  # fmt: skip
_WIDEST = 60  # columns of a column


class Sql(Pane):
    """Any question."""

    TITLE = "SQL"
    HINTS = "Enter asks  Esc leaves the line  e edits it"
    HELP = (
        "Type a statement and Enter; Esc leaves the line, so that keys are commands again, e goes"
        " back to it. The tables are those of\n`monarch query`: SHOW TABLES, DESCRIBE actors. As"
        " long as nothing was asked, saved questions are shown: Enter on one asks it."
    )
    BINDINGS = [Binding("e", "edit", "Edit"), Binding("escape", "leave", "Leave")]

    def __init__(self) -> None:
        super().__init__()
        self._answer: Mapping[str, Any] | None = None
        self._said = ""
        self._widths: list[int] = []
        self._asked = 0

    def compose(self) -> ComposeResult:
        yield Input(id="statement", placeholder="SELECT ...", compact=True)
        yield self.listing

    def rows(self) -> tuple[Sequence[Row], Row]:
        if self._said:
            return list(wrapped(self._said, self.listing.size.width, "bold red")), ()
        if self._answer is None:
            return [
                [(title, "bold"), (f"   {statement}", "dim")] for title, statement in SAVED.items()
            ], ()
        columns, rows = self._answer["columns"], self._answer["rows"]
        texts = [[*map(_text, (row[name] for name in columns))] for row in rows[:200]]
        self._widths = [
            min(_WIDEST, max(len(name), *(len(row[at]) for row in texts)) if texts else len(name))
            for at, name in enumerate(columns)
        ]
        head = [
            (f"{plain(name):<{width}}  ", "")
            for name, width in zip(columns, self._widths, strict=True)
        ]
        return Made(len(rows), self._row), head

    def note(self) -> str:
        if self._answer is None:
            return ""
        silent = "".join(f"; {who} did not answer" for who in self._answer["silent"])
        return f"{len(self._answer['rows']):,} rows" + silent

    def choose(self) -> None:
        """Ask the saved question that is marked; of a row, show all of it."""
        if self._answer is None and not self._said:
            prompt = self.query_one("#statement", Input)
            prompt.value = list(SAVED.values())[self.listing.cursor]
            self._ask(prompt.value)
        elif self._answer is not None and self._answer["rows"]:
            row = self._answer["rows"][self.listing.cursor]
            width = max(40, self.app.size.width - 10)
            self.dashboard.overlay(
                "row",
                [
                    line
                    for name, value in row.items()
                    for line in wrapped(f"{name}: {_text(value)}", width)
                ],
            )

    @property
    def focused_first(self) -> Widget:
        return self.listing

    def action_edit(self) -> None:
        """Go to the statement."""
        self.query_one("#statement", Input).focus()

    def action_leave(self) -> None:
        """Leave the statement."""
        self.listing.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip():
            self._ask(event.value)
        else:
            self._answer, self._said = None, ""
            self.rebuild()

    def _ask(self, statement: str) -> None:
        self._asked += 1
        asked = self._asked

        def take(answer: Any, trouble: str) -> None:
            if asked == self._asked:  # and nothing else was asked meanwhile
                self._answer, self._said = answer, trouble
                self.listing.cursor = 0
                self.rebuild()
                self.listing.focus()
                self.dashboard.say(trouble.partition("\n")[0])

        def question(line: Line) -> Any:
            return line.post("/v1/query", {"sql": statement})

        self.dashboard.say("asking ...")
        self.dashboard.ask(question, take)

    def _row(self, index: int) -> Row:
        assert self._answer is not None
        row = self._answer["rows"][index]
        return [
            (f"{_cut(plain(_text(row[name])), width):<{width}}  ", "")
            for name, width in zip(self._answer["columns"], self._widths, strict=True)
        ]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _text(value: Any) -> str:
    return "" if value is None else str(value)
