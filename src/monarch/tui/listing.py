"""A list of lines of which only the visible ones are made and drawn.

Ten thousand cost what forty do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from .http import unreadable
from .text import Row, plain

_SIDEWAYS = 16  # columns


class Listing(Widget, can_focus=True):
    """A list of lines, of which one is marked.

    Attributes:
        cursor: Number of the line that is marked.
        lines: The lines; made when they are looked at.
    """

    BINDINGS = [
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("g,home", "jump(0)", show=False),
        Binding("G,end", "jump(-1)", show=False),
        Binding("pagedown,ctrl+d", "page(1)", show=False),
        Binding("pageup,ctrl+u", "page(-1)", show=False),
        Binding("left", "sideways(-1)", show=False),
        Binding("right", "sideways(1)", show=False),
        Binding("ctrl+l", "to_top", show=False),
        Binding("enter", "choose", show=False),
    ]
    DEFAULT_CSS = "Listing { width: 1fr; height: 1fr; }"

    class Moved(Message):
        """The cursor stands elsewhere."""

    class Chosen(Message):
        """Enter was typed."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: Sequence[Row] = ()
        self.cursor = 0
        self._head: Row = ()
        self._top = 0
        self._left = 0
        self._wanted = ""

    def show(self, lines: Sequence[Row], head: Row = (), cursor: int | None = None) -> None:
        """Show other lines.

        Args:
            lines: They.
            head: Stays above them.
            cursor: Where it is to stand; None for where it stands.
        """
        self.lines = lines
        self._head = _harmless(head)
        self._put(self.cursor if cursor is None else cursor)
        self.refresh()

    @property
    def at_end(self) -> bool:
        """True if the cursor stands on the last line."""
        return self.cursor >= len(self.lines) - 1

    def find(self, text: str) -> bool:
        """Mark a text wherever it stands, and go to the next line that has it.

        It returns whether there is one.
        """
        self._wanted = text.lower()
        self.refresh()
        return self.find_next(1, 0)

    def find_next(self, step: int, first: int = 1) -> bool:
        """Go to the next line, or the one before, that has the text."""
        count = len(self.lines)
        for away in range(first, count + first):
            index = (self.cursor + step * away) % count
            if (
                self._wanted
                and self._wanted in "".join(text for text, _ in self._line(index)).lower()
            ):
                self.action_jump(index)
                return True
        return False

    def render_line(self, y: int) -> Strip:
        """Draw a line of the screen."""
        width, base = self.size.width, self.rich_style
        if self._head and y == 0:
            return self._strip(self._head, base + Style(bold=True, underline=True), width)
        index = self._top + y - bool(self._head)
        if index >= len(self.lines):
            return Strip.blank(width, base)
        marked = index == self.cursor and self.has_focus
        return self._strip(
            self._line(index), base + Style(reverse=True) if marked else base, width, marked
        )

    def _line(self, index: int) -> Row:
        """A line, harmless. It is made only now, of an answer that may be of another version."""
        try:
            return _harmless(self.lines[index])
        except Exception as error:
            return [(f"a line that can't be made: {unreadable(error)}", "bold red")]

    def _strip(self, row: Row, base: Style, width: int, marked: bool = False) -> Strip:
        segments = [
            Segment(
                part,
                base
                + (_style("bold underline") if found else Style() if marked else _style(style)),
            )
            for text, style in row
            for part, found in self._parts(text)
        ]
        strip = Strip(segments)
        return strip.crop(self._left, self._left + width).adjust_cell_length(width, base)

    def _parts(self, text: str) -> Iterator[tuple[str, bool]]:
        """A text, cut where that stands which is looked for."""
        at, lower = 0, text.lower()
        while (
            self._wanted
            and len(lower) == len(text)
            and (found := lower.find(self._wanted, at)) >= 0
        ):
            yield text[at:found], False
            at = found + len(self._wanted)
            yield text[found:at], True
        yield text[at:], False

    def on_resize(self) -> None:
        self._put(self.cursor)

    def on_focus(self) -> None:
        self.refresh()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.action_move(-3)

    def on_click(self, event: events.Click) -> None:
        if event.y or not self._head:
            self.action_jump(self._top + event.y - bool(self._head))

    def action_move(self, lines: int) -> None:
        """Go down, or up."""
        self.action_jump(max(0, self.cursor + lines))

    def action_page(self, pages: int) -> None:
        """Go down by screens, or up."""
        self.action_move(pages * max(1, self._height - 1))

    def action_jump(self, index: int) -> None:
        """Go to a line; -1 is the last."""
        self._put(len(self.lines) - 1 if index == -1 else index)
        self.refresh()
        self.post_message(self.Moved())

    def action_sideways(self, steps: int) -> None:
        """Show what stands further right, or left."""
        self._left = max(0, self._left + steps * _SIDEWAYS)
        self.refresh()

    def action_to_top(self) -> None:
        """Have the marked line on top."""
        self._top = min(self.cursor, max(0, len(self.lines) - self._height))
        self.refresh()

    def action_choose(self) -> None:
        """Say that Enter was typed."""
        self.post_message(self.Chosen())

    @property
    def _height(self) -> int:
        return max(1, self.size.height - bool(self._head))

    def _put(self, cursor: int) -> None:
        self.cursor = max(0, min(cursor, len(self.lines) - 1))
        self._top = max(0, min(self._top, self.cursor, len(self.lines) - self._height))
        self._top = max(self._top, self.cursor - self._height + 1)


def _harmless(row: Row) -> Row:
    return [(plain(text), style) for text, style in row]


_style = lru_cache(512)(Style.parse)
