"""The limits of a link, and the clock by which they are held."""

from __future__ import annotations

from ..._namedtuple import NamedTuple


class Limits(NamedTuple):
    """The limits of a link. Times in seconds, `frame` in bytes."""

    reconnect: float
    attach: float
    frame: int

    @property
    def silence(self) -> float:
        """Without a sign of life, after which a stream is broken."""
        return self.reconnect / 2

    @property
    def look(self) -> float:
        """Between looks at the clock, at most; twice as much counts as a pause of our own."""
        return self.reconnect / 16

    @property
    def interval(self) -> float:
        """Without anything sent, after which a ping is."""
        return self.reconnect / 4


class RunClock:
    """Time in which the own process ran, as seen by a caller that asks at least every `longest / 2`
    seconds.

    A process that was stopped, or had its threads wait for a lock, would otherwise find all others
    silent when it goes on.
    """

    def __init__(self, longest: float, now: float) -> None:
        self.longest = longest
        self._last = now
        self._ran = 0.0

    def at(self, now: float) -> float:
        # a longer step is a pause of this process: only `longest` of it counts as silence of others
        self._ran += min(max(0.0, now - self._last), self.longest)
        self._last = now
        return self._ran
