"""A screen: a source, and the lines that are made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

from textual.app import ComposeResult
from textual.containers import Container
from textual.widget import Widget

from .http import Line, unreadable
from .listing import Listing
from .sources import ScreenSource
from .text import Row

KEYS = (
    "1-8 screen   j k ↓ ↑ move   g G ends   PgUp PgDn pages   ← → sideways   / find   n N next,"
    " previous\nf hold what is shown, or follow the program again   Enter goes on where it leads  "
    " Esc closes   q quits"
)
"""Of all screens."""


class Dashboard(Protocol):
    """The protocol of the app, as screens see it."""

    def open(self, name: str, about: Any = None) -> None:
        """Open another screen.

        It is named by its title in lower case, with a target such as ``trainers[3]``.
        """

    def ask(self, question: Callable[[Line], Any], take: Callable[[Any, str], None]) -> None:
        """Ask once, on a thread.

        `take` is given the answer and an empty text, or None and the error.
        """

    def overlay(
        self, title: str, question: Callable[[Line], Iterable[Row]] | Sequence[Row]
    ) -> None:
        """Show lines above the screen, that are there, or that are to be asked for."""

    def say(self, text: str) -> None:
        """Say something in the status, until the next key."""

    def look_now(self) -> None:
        """Refresh the pane without delay."""

    def look_anew(self) -> None:
        """Look with another question."""


class Pane(Container):
    """Base class of the screens.

    Attributes:
        TITLE: Of the screen.
        HINTS: Its own keys, for the last line of the screen.
        HELP: What it shows, and how to use it.
        source: What it shows; None if it asks by itself.
        listing: Its lines; keys go there.
    """

    TITLE = ""
    HINTS = ""
    HELP = ""
    DEFAULT_CSS = "Pane { width: 1fr; height: 1fr; }"

    def __init__(self, source: ScreenSource | None = None) -> None:
        super().__init__(id=self.TITLE.lower())
        self.source = source
        self.listing = Listing()

    @property
    def dashboard(self) -> Dashboard:
        """The app."""
        return cast("Dashboard", self.app)

    def compose(self) -> ComposeResult:
        yield self.listing

    def rebuild(self) -> None:
        """Make the lines anew, or keep those that are there if they can't be made.

        The cursor stays with what it is at.
        """
        with self.reading():
            about = self.about()
            lines, head = self.rows()
            self.listing.show(lines, head, self.place_of(about) if about is not None else None)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Something is made of answers: one that can't be read is told, and ends nothing."""
        try:
            yield
        except Exception as error:
            if self.source is not None:
                self.source.odd = unreadable(error)
            else:
                self.dashboard.say(unreadable(error))

    def rows(self) -> tuple[Sequence[Row], Row]:
        """The lines, and the head above them."""
        raise NotImplementedError

    def about(self) -> Any:
        """Return the subject of the marked line; None if it has none."""
        return None

    def place_of(self, about: Any) -> int | None:
        """The line about something; None if it is gone."""
        return None

    def choose(self) -> None:
        """Enter was typed."""

    def seek(self, about: Any) -> None:
        """Go to something, such as ``trainers[3]``."""

    def note(self) -> str:
        """Return this screen's note in the status line."""
        return ""

    def on_resize(self) -> None:
        if self.display and self.is_mounted:
            self.rebuild()

    def on_listing_chosen(self, event: Listing.Chosen) -> None:
        event.stop()
        with self.reading():
            self.choose()

    @property
    def focused_first(self) -> Widget:
        """The widget that gets keys when the screen is opened."""
        return self.listing


class Folded(Pane):
    """A screen with lines in groups, each with a head line, that Tab folds."""

    BINDINGS = [("tab", "fold", "Fold"), ("c", "fold_all", "Fold all")]

    def __init__(self, source: ScreenSource) -> None:
        super().__init__(source)
        self._folded: set[Any] = set()
        self._abouts: list[Any] = []

    def groups(self) -> Iterator[tuple[Any, Row, Sequence[Row]]]:
        """Iterate over groups: the subject (None: no head), the head line, the other lines."""
        raise NotImplementedError

    def rows(self) -> tuple[Sequence[Row], Row]:
        lines: list[Row] = []
        self._abouts = []
        for about, head, body in self.groups():
            mark = "" if about is None else "  "
            if about is not None and body:
                mark = "▶ " if about in self._folded else "▼ "
            lines.append([(mark, ""), *head])
            if about not in self._folded:
                lines += body
            self._abouts += [about] * (len(lines) - len(self._abouts))
        return lines, ()

    def about(self) -> Any:
        return (
            self._abouts[self.listing.cursor] if self.listing.cursor < len(self._abouts) else None
        )

    def place_of(self, about: Any) -> int | None:
        """The line of the group at which the cursor stood, as long as the group has one."""
        if about not in self._abouts:
            return None
        first = self._abouts.index(about)
        return max(first, min(self.listing.cursor, first + self._abouts.count(about) - 1))

    def action_fold(self) -> None:
        """Fold the group of the marked line, or unfold it."""
        about = self.about()
        if about is not None:
            self._folded ^= {about}
            self.rebuild()

    def action_fold_all(self) -> None:
        """Fold all groups, or unfold them."""
        with self.reading():
            abouts = {about for about, _, _ in self.groups() if about is not None}
            self._folded = set() if abouts <= self._folded else abouts
        self.rebuild()
