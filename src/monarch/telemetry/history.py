"""How much each actor has handled, second by second.

Ten minutes are kept, and six hours by ten seconds. Memory is bounded as well.

Rows are kept only for seconds in which an actor did something, as four numbers each. Pure: the time
is passed in.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator

from .._namedtuple import NamedTuple

LEVELS = (1, 600), (10, 6 * 3600)
"""Seconds of a row, and for how many seconds it is kept."""

ROW_BYTES = 32
_WORDS = 4
_EARLY = 0.5  # seconds; a tick may come that much before a row is due


class Passed(NamedTuple):
    """An actor's activity in some seconds.

    Attributes:
        at: Their end, in microseconds since 1970.
        seconds: Length of the interval; messages handled before it, since the last row, are
            included.
        uid: Of the actor.
        handled: How many messages it has begun to handle.
        queued: How many waited at the end.
    """

    at: int
    seconds: int
    uid: int
    handled: int
    queued: int


class _Level:
    def __init__(self, seconds: int, kept: int, most: int) -> None:
        self._seconds = seconds
        self._kept = kept
        self._most = most
        self._rows = array("Q")
        self._counts: dict[int, int] = {}  # of each actor that lives, at the last row
        self._last = -math.inf

    def look(self, now: float, at: int, actors: Iterable[tuple[int, int, int]]) -> None:
        if now - self._last < self._seconds - _EARLY:
            return
        self._last = now
        before, self._counts = self._counts, {}
        for uid, count, queued in actors:
            self._counts[uid] = count
            handled = count - before.get(uid, 0)
            if handled > 0 or queued:
                self._rows.extend((at, uid, max(0, handled), queued))
        self._forget(at - self._kept * 1_000_000)

    def _forget(self, before: int) -> None:
        """Drop entries that are too old or too many.

        A margin in the number keeps this from happening each time.
        """
        rows, end = self._rows, 0
        if len(rows) > self._most * _WORDS:
            end = len(rows) - self._most * _WORDS * 3 // 4 // _WORDS * _WORDS
        while end < len(rows) and rows[end] < before:
            end += _WORDS
        if end:
            del rows[:end]

    def rows(self) -> Iterator[Passed]:
        words = iter(self._rows[:])
        for at, uid, handled, queued in zip(words, words, words, words, strict=True):
            yield Passed(at, self._seconds, uid, handled, queued)


class History:
    """A history of bounded size.

    Args:
        most: Bytes that it may take.
    """

    def __init__(self, most: int) -> None:
        rows = max(100, most // ROW_BYTES // len(LEVELS))
        self._levels = [_Level(seconds, kept, rows) for seconds, kept in LEVELS]

    def look(self, now: float, at: int, actors: Iterable[tuple[int, int, int]]) -> None:
        """Called about once a second while something is active.

        Args:
            now: Seconds, by a monotonic clock.
            at: Microseconds since 1970, for rows.
            actors: Of each its id, how many messages it has begun to handle, and how many wait.
        """
        found = list(actors)
        for level in self._levels:
            level.look(now, at, found)

    def rows(self) -> Iterator[Passed]:
        """Return the rows that are kept; those of seconds first."""
        for level in self._levels:
            yield from level.rows()
