"""Filters of lines, as readers of logs ask for them.

Plain data that can be sent to where the files are, and the check that it stands for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from .._rank_selector import RankSelector
from ..config._units import SECOND, Unreadable, read_duration
from .line import LogLine
from .ranks import coordinates

LEVELS = {
    "DEBUG": 10, "INFO": 20, "WARNING": 30, "WARN": 30, "ERROR": 40, "CRITICAL": 50, "FATAL": 50,
}  # fmt: skip


class LineFilter(NamedTuple):
    """Selects lines of a log. An empty field lets all through.

    Attributes:
        mesh: Name of the mesh.
        ranks: Ranks or coordinates, as `RankSelector` reads them.
        level: Lowest level of records of `logging`. Printed lines have no level: with one, they are
            left out.
        grep: Regular expression that the text must contain.
        since: Seconds since the epoch: the earliest time.
        until: Seconds since the epoch: the latest time; 0 for none.
    """

    mesh: str = ""
    ranks: str = ""
    level: int = 0
    grep: str = ""
    since: float = 0.0
    until: float = 0.0

    def matcher(self) -> Callable[[LogLine], bool]:
        """Return the check of a line.

        Raises:
            ValueError: The ranks or the regular expression cannot be read.
        """
        ranks = RankSelector(self.ranks) if self.ranks else None
        try:
            pattern = re.compile(self.grep) if self.grep else None
        except re.error as error:
            raise ValueError(f"{self.grep!r} is no regular expression: {error}") from None
        mesh, level, since, until = self.mesh, self.level, self.since, self.until or math.inf

        def matches(line: LogLine) -> bool:
            return (
                since <= line.time <= until
                and line.level >= level
                and (not mesh or line.mesh == mesh)
                and (ranks is None or ranks.matches(line.rank, coordinates(line.point)))
                and (pattern is None or pattern.search(line.text) is not None)
            )

        return matches


def parse_level(text: str) -> int:
    """The number of a level that is given by name or as a number.

    Raises:
        ValueError: It is neither.
    """
    number = LEVELS.get(text.upper()) or (int(text) if text.isdecimal() else 0)
    if not 0 < number < 256:
        raise ValueError(
            f"a level is one of {', '.join(LEVELS)} or a number from 1 to 255, got {text!r}"
        )
    return number


def parse_since(text: str, now: float) -> float:
    """The time that is meant by an age such as ``5m``, or by a date and time.

    Raises:
        ValueError: It is neither.
    """
    with suppress(Unreadable):
        return max(0.0, now - read_duration(text) / SECOND)
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise ValueError(
            f"a time is an age such as 90s, 5m, 2h, 1d, or 2026-03-01T09:30; got {text!r}"
        ) from None
