"""Asks after calls that take long: the thread that should answer may have vanished.

Code in C can end a thread (`pthread_exit`), and neither Python nor the kernel tells anybody. So who waits has the process of
the actor look. It does that when it is awake anyway: the client as it asks its agent for a sign of life, an actor's process as it
looks for deadlocks. A process in which nothing waits, or for which nobody waits, is left alone.
"""

from __future__ import annotations

from ..calls.source import Source
from .contracts import Hub


class Overdue:
    """Args:
    hub: That of this process.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._looks: dict[int, int] = {}  # by request: how often it was found unanswered

    def look(self) -> None:
        """Ask after calls that have been here for 2, 4, 8, ... looks: a thread is missed before its call takes twice as long."""
        requests = self._hub.requests.copy()
        self._looks = {number: self._looks.get(number, 0) + 1 for number in requests}
        for number, looks in self._looks.items():
            request = requests[number]
            if looks > 1 and not looks & (looks - 1) and isinstance(request, Source):
                self._ask_after(request)

    def _ask_after(self, request: Source) -> None:
        awaited = request.awaited()
        if awaited is not None:
            for process in awaited.silent:
                self._hub.call_system(process, "look_after", awaited.uid)
