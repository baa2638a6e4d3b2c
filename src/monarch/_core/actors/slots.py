"""How many invocations of one endpoint run, and which calls of it wait for one to end. Waits for nothing."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..hub.contracts import Origin
    from ..wire.frame import Frame


class Slots:
    """Used on the actor's thread. What waits may be taken out on any thread, when the actor ends.

    Args:
        count: How many may run at a time.
    """

    __slots__ = ("_free", "waiting")

    def __init__(self, count: int) -> None:
        self._free = count
        self.waiting: deque[tuple[Origin, Frame]] = deque()

    def take(self) -> bool:
        """Whether one more may run, from now on."""
        if not self._free:
            return False
        self._free -= 1
        return True

    def give_back(self) -> tuple[Origin, Frame] | None:
        """One has ended: what takes its place, if something waits."""
        try:
            return self.waiting.popleft()
        except IndexError:
            self._free += 1
            return None
