"""Time that passes only from event to event, and the log of what happened."""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections.abc import Callable


class Clock:
    """Events in the order of their times.

    Those of one time are in the order in which they were asked for.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._log = hashlib.blake2b(digest_size=16)

    def at(self, time: float, function: Callable[[], None]) -> None:
        """Call `function` at that time; now if it has passed."""
        heapq.heappush(self._due, (max(time, self.now), next(self._order), function))

    def after(self, seconds: float, function: Callable[[], None]) -> None:
        self.at(self.now + seconds, function)

    def step(self, limit: float) -> bool:
        """Go on to the next event; False if there is none up to `limit`, which it is then."""
        due = self._due
        if not due or due[0][0] > limit:
            self.now = max(self.now, limit)
            return False
        self.now, _, function = heapq.heappop(due)
        self.events += 1
        function()
        return True

    def note(self, *what: object) -> None:
        """Something that is the same in every run of one seed."""
        self._log.update(repr((self.now, *what)).encode())

    @property
    def log(self) -> str:
        """Hash of all that was noted."""
        return self._log.hexdigest()
