"""The decision whether a silent process is lost, by counting, without a clock.

::

    state    event      then
    -------  ---------  ------------------------------------------------
    ALIVE    expected   SILENT: a sign of life is due
    SILENT   seen       ALIVE
    SILENT   tick       LOST, if it is the last of so many, else SILENT
    LOST     any        LOST: it has been told, and cannot be taken back

What is counted are ticks that the observer itself ran, each at least an interval after the one
before. Time that passed would condemn everybody as soon as the observer was the one that stood
still: stopped with Ctrl-Z, or without the interpreter lock for a minute. By ticks, such a pause
counts once, and what came meanwhile is read before the next.
"""

from __future__ import annotations

ALIVE, SILENT, LOST = "alive", "silent", "lost"
TICKS = 4
"""Ticks in a time-out: fewer would let one pause of the observer weigh more, more would cost
messages.
"""


class Liveness:
    """The known signs of life of one process.

    Args:
        ticks: How many without a sign of life make it lost.
    """

    __slots__ = ("_left", "_ticks", "state")

    def __init__(self, ticks: int = TICKS) -> None:
        self._ticks = ticks
        self._left = ticks
        self.state = ALIVE

    def expected(self) -> None:
        """A sign of life is due from now on."""
        if self.state == ALIVE:
            self.state = SILENT
            self._left = self._ticks

    def seen(self) -> None:
        """A sign of life came."""
        if self.state == SILENT:
            self.state = ALIVE

    def tick(self) -> str:
        """The observer has run for one more interval; the state that follows."""
        if self.state == SILENT:
            self._left -= 1
            if self._left == 0:
                self.state = LOST
        return self.state
