"""How lines of ranks look on a terminal: colours, and nothing that moves the cursor.

Text in, text out.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .._words import named, tame
from .line import LogEntry

if TYPE_CHECKING:
    from .._core.plane import Output

_RESET = "\x1b[0m"
# cyan, green, magenta, blue, then lighter; never a warning's
_RANKS = ("36", "32", "35", "34", "96", "92", "95", "94")
_LEVELS = ((40, "31"), (30, "33"), (20, ""), (1, "2"))  # red, yellow, as it is, faint


def coloured(file: Any) -> bool:
    """Return whether colours are wanted there, by the same rules as Python's own tracebacks."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and is_terminal(file)


def is_terminal(file: Any) -> bool:
    """Return whether the stream is a terminal. An object in place of stdout may not know."""
    try:
        return bool(file.isatty())
    except Exception:
        return False


class TerminalStyle:
    """How entries are written to one file.

    Args:
        colours: Whether it shows colours.
        screen: Whether it is a terminal, which escape sequences can spoil.
    """

    def __init__(self, colours: bool, screen: bool) -> None:
        self._colours = colours
        self._tames = colours or screen

    def render(self, entry: LogEntry) -> str:
        """The text of an entry, with its author in front of each line."""
        line, several = entry.line, len(entry.ranks) > 1
        who = entry.who if several else ""
        if line.mesh:
            who = f"{line.mesh} {who or line.rank}"
        often = f" ({entry.lines} lines)" if entry.lines > len(entry.ranks) else ""
        return self._lines(self._prefix(who, line.rank), entry.text, line.level) + often + "\n"

    def show(self, output: Output, mesh: str) -> str:
        """The text of an output, in the same way.

        A proc that is alone may move the cursor: a progress bar does.

        Args:
            output: Of one proc.
            mesh: Name of its mesh; empty where that is not to be shown.
        """
        source = output.source
        prefix = self._prefix(f"{mesh} {source.rank}" if mesh else "", source.rank)
        lines = (
            self._lines(prefix, text, note.level, source.alone)
            for note, texts in output.said
            for text in texts
        )
        return "\n".join(lines) + output.end

    def _prefix(self, who: str, rank: int) -> str:
        if not who:
            return ""
        who = named(who)  # the name of a mesh may be any text
        return (
            f"\x1b[{_RANKS[rank % len(_RANKS)]}m[{who}] {_RESET}" if self._colours else f"[{who}] "
        )

    def _lines(self, prefix: str, text: str, level: int, moves: bool = False) -> str:
        if self._tames:
            text = tame(text, self._colours, moves)
        begin = end = ""
        if level and self._colours and "\x1b" not in text:
            begin, end = next(
                (f"\x1b[{style}m", _RESET) if style else ("", "")
                for least, style in _LEVELS
                if level >= least
            )
        if "\n" in text:
            text = text.replace("\n", f"{end}\n{prefix}{begin}")
        return f"{prefix}{begin}{text}{end}"
