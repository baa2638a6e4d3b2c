"""Screen 5: what ranks print and log, by time, as it comes."""

from __future__ import annotations

import logging
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from textual.app import ComposeResult
from textual.widgets import Input

from .._words import rank_name
from .pane import Pane
from .sources import LogSource
from .text import Made, Row, looking, wrapped

_LEVEL = r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_FILTER = re.compile(
    rf"(?:(?P<mesh>(?!{_LEVEL}$)[^\[\]\s]+)(?:\[(?P<rank>[^\]]*)\])?)?\s*(?P<level>[A-Z]+)?"
)
_MOST_SHOWN = 100_000  # characters


class Logs(Pane):
    """The screen of logs."""

    TITLE = "Logs"
    HINTS = "m which ranks  Enter whole line"
    HELP = (
        "What ranks have printed and logged, by time, and what comes, also of ranks that have"
        " ended. While the last line is marked,\nnew ones push the others up; G goes there. m asks"
        " whose lines to show: trainers, trainers[0,3-5], trainers WARNING, or\nnothing for all. /"
        " finds a text and leaves what stands around it. Enter shows all of a long line."
    )
    BINDINGS = [("m", "filter", "Which"), ("escape", "leave", "Leave")]

    def __init__(self, source: LogSource) -> None:
        super().__init__(source)
        self._logs = source
        self._places: list[tuple[int, int]] = []  # number of the line, and of the part of it
        self._dropped = 0

    def compose(self) -> ComposeResult:
        yield self.listing
        prompt = Input(id="whose", placeholder="trainers[0,3-5] WARNING", compact=True)
        prompt.display = False
        yield prompt

    def rows(self) -> tuple[Sequence[Row], Row]:
        lines = self._logs.lines
        self._places = [
            (number, part)
            for number, line in enumerate(lines)
            for part in range(line["text"].count("\n") + 1)
        ]
        if not lines:
            notes = [
                row
                for note in self._logs.notes
                for row in wrapped(note, self.listing.size.width, "yellow")
            ]
            return notes or [[("no lines yet", "dim")] if self._logs.heard else looking()], ()
        return Made(len(self._places), self._row), ()

    def rebuild(self) -> None:
        ends = self.listing.at_end
        super().rebuild()
        if ends:
            self.listing.action_jump(-1)

    def about(self) -> Any:
        """The line, counted from the first one that has ever come."""
        if self.listing.cursor >= len(self._places):
            return None
        number, part = self._places[self.listing.cursor]
        return self._dropped + number, part

    def place_of(self, about: Any) -> int | None:
        self._dropped = self._logs.dropped
        place = (max(0, about[0] - self._dropped), about[1])
        at = bisect_left(self._places, place)
        return at if at < len(self._places) else None

    def choose(self) -> None:
        """Show all of the marked line, and where it is from."""
        if self._places:
            line = self._logs.lines[self._places[self.listing.cursor][0]]
            width = max(40, self.app.size.width - 10)
            about = [
                f"{name}: {value}"
                for name, value in line.items()
                if value not in ("", None) and name != "text"
            ]
            self.dashboard.overlay(
                "line",
                [
                    *wrapped(line["text"][:_MOST_SHOWN], width),
                    [],
                    *([(each, "dim")] for each in about),
                ],
            )

    def seek(self, about: Any) -> None:
        """Show the lines of ``trainers[3]``, or of what else the prompt of `m` takes."""
        self._show(about)

    def note(self) -> str:
        lines = len(self._logs.lines)
        whose = " ".join(f"{name}={value}" for name, value in self._logs.filter.items())
        return f"{lines:,} lines" + (f" of {whose}" if whose else "")

    def action_filter(self) -> None:
        """Ask for a filter of lines."""
        prompt = self.query_one("#whose", Input)
        prompt.display = True
        prompt.focus()

    def action_leave(self) -> None:
        """Leave the prompt, and mark nothing any more."""
        self.query_one("#whose", Input).display = False
        self.listing.find("")
        self.listing.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        event.input.display = False
        self.listing.focus()
        self._show(event.value)

    def _show(self, wanted: str) -> None:
        found = _FILTER.fullmatch(wanted.strip())
        if found is None:
            self.dashboard.say(f"these are such as trainers[0,3-5] WARNING, not {wanted!r}")
            return
        self._logs.choose({name: value or "" for name, value in found.groupdict().items()})
        self._dropped = 0
        self.dashboard.look_anew()
        self.rebuild()

    def _row(self, index: int) -> Row:
        number, part = self._places[index]
        line = self._logs.lines[number]
        who, text = rank_name(line["mesh"], line["rank"]), line["text"].split("\n")[part]
        if part:
            return [(" " * (len(who) + 14), ""), (text, _style(line))]
        at = datetime.fromtimestamp(line["time"])
        return [
            (f"{at:%H:%M:%S}.{at.microsecond // 1000:03d} ", "dim"),
            (who + " ", "cyan"),
            (text, _style(line)),
        ]


def _style(line: Mapping[str, Any]) -> str:
    if line["level"] >= logging.ERROR:
        return "bold red"
    if line["level"] >= logging.WARNING:
        return "yellow"
    return "dim" if 0 < line["level"] < logging.INFO else ""
