"""Lines of logs as text for people: with time, host, mesh and rank, and without what could deceive them or their terminal."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import datetime

from .line import LogLine

_DIM, _RED, _YELLOW, _END = "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[0m"
_RANKS = [f"\x1b[{code}m" for code in (36, 32, 35, 34, 96, 92, 95, 94)]

# Escape sequences (of colours; of cursor, screen and keys; titles, clipboard and links; others), control characters, and those
# that reverse the order of text.
_CONTROL = re.compile(
    r"(?P<colour>\x1b\[[0-9;:]*m)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)


def show(line: LogLine, colours: bool, who: str = "", text: str | None = None) -> str:
    """Return a line as text, without a newline at its end; further lines of it are indented.

    Args:
        line: The line.
        colours: Whether it goes to a terminal that has colours.
        who: Who has said it; empty for the rank of the line.
        text: What is said, in place of the text of the line.
    """
    time = datetime.fromtimestamp(line.time).isoformat(" ", "milliseconds")
    said = printable(line.text if text is None else text, colours)
    level = logging.getLevelName(line.level) if line.level else ""
    if level not in said:  # most programs write it themselves
        said = f"{printable(level)}: {said}"
    place, who = f"{time} {printable(line.host)}", f"[{printable(line.mesh)} {printable(who or str(line.rank))}]"
    if colours:
        colour = _RED if line.level >= logging.ERROR else _YELLOW if line.level >= logging.WARNING else ""
        place, who = f"{_DIM}{place}{_END}", f"{_RANKS[line.rank % len(_RANKS)]}{who}{_END}"
        said = f"{colour}{said}{_END}"
    return f"{place} {who} {said}".replace("\n", "\n    ")


def printable(text: str, colours: bool = False) -> str:
    """Return text without escape sequences and control characters, but for tabs, newlines and, if asked for, colours."""
    keep: Callable[[re.Match[str]], str] = lambda match: match["colour"] or ""  # noqa: E731
    return _CONTROL.sub(keep if colours else "", text)
