"""How lines of ranks look on a terminal: colours, and nothing that moves the cursor. Text in, text out."""

from __future__ import annotations

import os
import re
from typing import Any

from .entry import Entry

_RESET = "\x1b[0m"
_RANKS = ("36", "32", "35", "34", "96", "92", "95", "94")  # cyan, green, magenta, blue, then lighter; never a warning's
_LEVELS = ((40, "31"), (30, "33"), (20, ""), (1, "2"))  # red, yellow, as it is, faint

_ESCAPE = re.compile(
    r"(?P<style>\x1b\[[0-9;:]*m)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # cursor, erase, modes
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c|$)"  # titles, clipboard, ...
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"  # and what turns the direction of text around
)


def coloured(file: Any) -> bool:
    """Whether colours are wanted there, by the same rules as Python's own tracebacks."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return os.environ.get("TERM") != "dumb" and is_terminal(file)


def is_terminal(file: Any) -> bool:
    """Whether it is one. What a program has put in place of its stdout may not know."""
    try:
        return bool(file.isatty())
    except Exception:
        return False


class Look:
    """How entries are written to one file.

    Args:
        colours: Whether it shows colours.
        screen: Whether it is a terminal, which escape sequences can spoil.
    """

    def __init__(self, colours: bool, screen: bool) -> None:
        self._colours = colours
        self._tames = colours or screen

    def render(self, entry: Entry) -> str:
        """The text of an entry, with who said it in front of each of its lines."""
        line, several = entry.line, len(entry.ranks) > 1
        who = f"{line.mesh} {entry.who if several else line.rank}" if line.mesh else entry.who if several else ""
        prefix = f"[{who}] " if who else ""
        style = next((style for least, style in _LEVELS if line.level >= least), "")
        if prefix and self._colours:
            prefix = f"\x1b[{_RANKS[line.rank % len(_RANKS)]}m{prefix}{_RESET}"
        text = tame(entry.text, self._colours) if self._tames else entry.text
        if style and self._colours and "\x1b" not in text:
            text = text.replace("\n", f"{_RESET}\n{prefix}\x1b[{style}m")
            text = f"\x1b[{style}m{text}{_RESET}"
        else:
            text = text.replace("\n", "\n" + prefix)
        often = f" ({entry.lines} lines)" if entry.lines > len(entry.ranks) else ""
        return f"{prefix}{text}{often}\n"


def tame(text: str, colours: bool) -> str:
    """Leave out what would move the cursor, clear the screen or set a title; colours stay if they are wanted."""
    if not _ESCAPE.search(text):
        return text
    kept = _ESCAPE.sub(lambda found: found["style"] or "" if colours else "", text)
    return kept + _RESET if "\x1b" in kept else kept
