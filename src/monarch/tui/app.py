"""The dashboard: its screens, of which one is looked at, and that one alone is kept current."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.segment import Segment
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.color import Color
from textual.containers import Container
from textual.content import Content
from textual.filter import LineFilter
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from .failures import Failures
from .feed import Feed
from .http import Access, Line, told, unreadable
from .listing import Listing
from .logs import Logs
from .now import Now
from .pane import KEYS, Pane
from .ranks import Ranks
from .sources import LogSource, NowSource, TreeSource, WhySource
from .sql import Sql
from .stacks import Stacks
from .text import Row, duration, plain, wrapped
from .tree import TreePane
from .waits import Waits

REFRESH = 2.0
"""Seconds between looks."""

_STALE = "bold white on red"


class Came(Message):
    """A feed has something, or knows why it has nothing."""

    def __init__(self, feed: Feed, update: Any, trouble: str, ended: bool) -> None:
        super().__init__()
        self.feed = feed
        self.update = update
        self.trouble = trouble
        self.ended = ended


class Answered(Message):
    """A message: a single question has been answered."""

    def __init__(self, take: Callable[[Any, str], None], answer: Any, trouble: str) -> None:
        super().__init__()
        self.take = take
        self.answer = answer
        self.trouble = trouble


class _Colourless(LineFilter):
    """Leaves bold, underlined and reverse."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            Segment(text, style.without_color if style else None, control)
            for text, style, control in segments
        ]


class Overlay(ModalScreen[None]):
    """Lines above the screen, until Esc.

    Args:
        title: Above them.
        lines: They.
    """

    BINDINGS = [("escape,q", "dismiss", "Close")]
    DEFAULT_CSS = """
    Overlay { align: center middle; }
    Overlay Container { width: 96%; height: 90%; border: solid gray; padding: 0 1; }
    """

    def __init__(self, title: str, lines: Sequence[Row]) -> None:
        super().__init__()
        self._title = title
        self._listing = Listing()
        self._listing.lines = lines

    def compose(self) -> ComposeResult:
        box = Container(self._listing)
        title = f"{self._title}, Esc closes"
        box.border_title = Content(plain(title)).markup
        yield box

    def on_mount(self) -> None:
        self._listing.focus()

    def show(self, lines: Sequence[Row]) -> None:
        """Show other lines."""
        self._listing.show(lines)


class Dashboard(App[None]):
    """The app.

    Args:
        access: To the server.
        refresh: Seconds between looks.
        theme: One of Textual's; None for the usual one.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; }
    .line { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: ellipsis; }
    #body { height: 1fr; }
    #find { height: 1; border: none; padding: 0; display: none; }
    """
    BINDINGS = [
        *[Binding(str(number), f"number({number - 1})", show=False) for number in range(1, 9)],
        Binding("f", "hold", show=False),
        Binding("slash", "find", show=False),
        Binding("n", "find_next(1)", show=False),
        Binding("N", "find_next(-1)", show=False),
        Binding("question_mark", "help", show=False),
        Binding("escape", "leave", show=False),
        Binding("q", "quit", show=False),
        Binding("ctrl+c", "quit", show=False, priority=True),
    ]

    def __init__(self, access: Access, refresh: float = REFRESH, theme: str | None = None) -> None:
        super().__init__()
        if theme is not None:
            self.theme = theme
        self._access = access
        self._pause = refresh
        now, why = NowSource(), WhySource()
        self.panes: list[Pane] = [
            Now(now), Ranks(now), Stacks(why), Waits(why), Logs(LogSource()), Failures(now), TreePane(TreeSource()), Sql()
        ]  # fmt: skip
        self._tabs, self._status, self._keys = (
            Static(classes="line", markup=False) for _ in range(3)
        )
        self._prompt = Input(id="find", placeholder="find", compact=True)
        self._pane = self.panes[0]
        self._feed: Feed | None = None
        self._held = False
        self._said = ""
        self._program, self._place, self._since = "", "", 0.0  # which, once the server has told
        self._colourless = bool(os.environ.get("NO_COLOR"))

    def compose(self) -> ComposeResult:
        yield self._tabs
        yield self._status
        with Container(id="body"):
            yield from self.panes
        yield self._prompt
        yield self._keys

    def get_line_filters(self) -> Sequence[LineFilter]:
        found = super().get_line_filters()
        return [*found, _Colourless()] if self._colourless else found

    def on_mount(self) -> None:
        for pane in self.panes:
            pane.display = False
        self._open(self._pane)
        self.set_interval(1.0, self._show_status)
        self.ask(lambda line: line.get("/v1/access").get("program"), self._take_program)

    def _take_program(self, about: Any, trouble: str) -> None:
        if about and not trouble:
            self._program = about["command"]  # last: a long one is cut
            known = map(about.get, ("pid", "host"))
            self._place = " · ".join(str(each) for each in known if each)
            self._since = float(about.get("since") or 0)

    def on_unmount(self) -> None:
        self._follow(None)

    @property
    def pane(self) -> Pane:
        """The screen that is looked at."""
        return self._pane

    def open(self, name: str, about: Any = None) -> None:
        """Open a screen.

        Args:
            name: Its title in lower case.
            about: What it is to show there, such as ``trainers[3]``.
        """
        pane = next(each for each in self.panes if each.id == name)
        self._open(pane)
        if about is not None:
            with pane.reading():
                pane.seek(about)

    def look_now(self) -> None:
        """Refresh the screen without delay."""
        if self._feed is not None:
            self._feed.wake()

    def look_anew(self) -> None:
        """Look with another question."""
        self._follow(None)
        self._follow(self._pane)

    def ask(self, question: Callable[[Line], Any], take: Callable[[Any, str], None]) -> None:
        """Ask once, on a thread.

        What ends it: the answer, or the time that a connection may be silent.

        Args:
            question: Asks.
            take: Is given the answer and an empty text, or None and what went wrong; on the thread
                of the screen.
        """

        def run() -> None:
            try:
                answer, trouble = question(Line(self._access)), ""
            except Exception as error:  # an answer may be anything
                answer, trouble = None, told(error)
            self.post_message(Answered(take, answer, trouble))

        threading.Thread(target=run, name="monarch-tui-ask", daemon=True).start()

    def overlay(
        self, title: str, question: Callable[[Line], Iterable[Row]] | Sequence[Row]
    ) -> None:
        """Show lines above the screen, that are there, or that are to be asked for."""
        if not callable(question):
            self.push_screen(Overlay(title, question))
            return
        shown = Overlay(title, [[("asking ...", "dim")]])
        self.push_screen(shown)

        def take(lines: Any, trouble: str) -> None:
            shown.show(
                list(wrapped(trouble, self.size.width - 8, "bold red")) if trouble else lines
            )

        self.ask(lambda line: list(question(line)), take)

    def say(self, text: str) -> None:
        """Say something in the status, until the next key."""
        self._said = text
        self._show_status()

    def on_came(self, message: Came) -> None:
        if message.feed is not self._feed:  # it was stopped meanwhile
            return
        source = message.feed.source
        source.trouble, before = message.trouble, source.heard
        # that nothing listens there any more is no news then
        source.ended = message.ended or (source.ended and bool(message.trouble))
        if not source.trouble and (message.update is not None or source.heard):
            source.heard = time.monotonic()  # first: lines say whether anything was heard yet
        if message.update is not None:
            source.odd = ""
            with self._pane.reading():
                source.take(message.update)
            if not source.odd:
                self._pane.rebuild()
        if source.odd:
            source.heard = before
        self._show_status()

    def on_answered(self, message: Answered) -> None:
        try:
            message.take(message.answer, message.trouble)
        except Exception as error:
            self.say(unreadable(error))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.input.display = False
        self._pane.listing.focus()
        if not self._pane.listing.find(event.value) and event.value:
            self.say(f"no line here has {event.value!r}")

    def on_key(self) -> None:
        self._said = ""

    def on_listing_moved(self) -> None:
        self._show_status()

    def action_number(self, number: int) -> None:
        """Open a screen by its number."""
        self._open(self.panes[number])

    def action_hold(self) -> None:
        """Freeze the screen, or follow the program again."""
        self._held = not self._held
        self._follow(None if self._held else self._pane)
        self._show_status()

    def action_find(self) -> None:
        """Ask what to find."""
        self._prompt.value = ""
        self._prompt.display = True
        self._prompt.focus()

    def action_find_next(self, step: int) -> None:
        """Go to the next line with the text, or the one before."""
        self._pane.listing.find_next(step)

    def action_leave(self) -> None:
        """Leave a prompt, and mark nothing any more."""
        self._prompt.display = False
        self._pane.listing.find("")
        self._pane.listing.focus()

    def action_help(self) -> None:
        """Show what this screen is, and all keys."""
        pane = self._pane
        text = f"{pane.TITLE}: {pane.HELP}\n\n{pane.HINTS}\n\n{KEYS}"
        self.push_screen(
            Overlay("help", list(wrapped(text, max(40, self.size.width * 96 // 100 - 4))))
        )

    def _open(self, pane: Pane) -> None:
        previous, self._pane = self._pane, pane
        previous.display = False
        pane.display = True
        if self._feed is None or self._feed.source is not pane.source:
            self._held = False
            self._follow(None)
            self._follow(pane)
        pane.focused_first.focus()
        pane.rebuild()
        self._show_status()

    def _follow(self, pane: Pane | None) -> None:
        """Keep a screen current, and no other."""
        if self._feed is not None:
            self._feed.stop()
            self._feed = None
        if pane is not None and pane.source is not None:
            self._feed = Feed(
                pane.source, self._access, self._pause, lambda *came: self.post_message(Came(*came))
            )

    def _show_status(self) -> None:
        tabs, status = Text(""), Text("")
        for number, pane in enumerate(self.panes, 1):
            tabs.append(f" {number} {pane.TITLE} ", "bold reverse" if pane is self._pane else "")
        note = ""
        with self._pane.reading():
            note = self._pane.note()
        trouble, state = self._connection()
        status.append(plain(state), _STALE if trouble else "")
        age = f"{duration(time.time() - self._since)} · " if self._since else ""
        place = f"{self._place} · {age}{self._program}" if self._program else self._access.url
        for text in (self._said or note, place):
            if text:
                status.append("  •  ", "dim")
                status.append(plain(text))
        self._tabs.update(tabs)
        self._status.update(status)
        keys = f"? help  q quit  / find  f hold  {self._pane.HINTS}"
        self._keys.update(Text(keys, "dim"))

    def _connection(self) -> tuple[bool, str]:
        """Return whether the connection is lost, and the text about it."""
        source = self._pane.source
        if source is None:
            return False, "asks when told to"
        age = duration(time.monotonic() - source.heard)
        if source.ended:
            return True, f" ENDED: what is shown is the last of the program, {age} old "
        if trouble := source.trouble or source.odd:
            since = f"- what is shown is {age} old " if source.heard else ""
            return True, f" LOST: {trouble} " + since
        if self._held:
            return False, f"HELD, {age} old; f goes on"
        return False, "live" if source.heard else "connecting"


def run(access: Access, refresh: float = REFRESH, theme: str | None = None) -> None:
    """Show the dashboard until the user quits.

    Args:
        access: To the server.
        refresh: Seconds between looks.
        theme: One of Textual's; None for the usual one.
    """
    Dashboard(access, refresh, theme).run()
