"""The unit of display: a line, or the common form of several lines."""

from __future__ import annotations

from typing import NamedTuple

from .line import LogLine
from .ranks import describe


class LogEntry(NamedTuple):
    """A line, or the common form of several, shown at once.

    Attributes:
        line: The first of them.
        text: Its text, with a range in place of each number that differs, such as ``0.31..0.52``.
        lines: How many they are.
        ranks: Who said them: coordinates by rank.
    """

    line: LogLine
    text: str
    lines: int
    ranks: dict[int, str]

    @property
    def who(self) -> str:
        """The ranks, as people write them."""
        return describe(self.ranks)


def alone(line: LogLine) -> LogEntry:
    """A line that is shown by itself."""
    return LogEntry(line, line.text, 1, {line.rank: line.point})
