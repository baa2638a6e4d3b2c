"""Asks after calls that take long: the thread that should answer may have vanished.

Code in C can end a thread (`pthread_exit`), and neither Python nor the kernel tells anybody. So a
process with an open call has the process of the actor look, once per quarter of
`heartbeat_timeout`, then ever more rarely. How the answer is waited for, and whether anybody does,
does not matter. A process without open calls has no timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import config
from ..calls.pending import PendingOperation
from .control import send_record
from .control_records import LookAfter

if TYPE_CHECKING:
    from ..calls.pending import PendingCall
    from ..net.poller import Timer
    from .contracts import Hub, Request

TICKS = 4
"""Looks within `heartbeat_timeout`: fewer would let one pause of the observer weigh more, more would
cost messages.
"""


class Overdue:
    """The watch over calls that take long.

    Args:
        hub: That of this process.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._looks: dict[int, int] = {}  # by request: how often it was found unanswered
        self._timer: Timer | None = None
        self.watching = False

    def watch(self, request: Request) -> None:
        """A request was made, while none was watched; on any thread."""
        if _unanswered(request) is not None and config.value("heartbeat_timeout"):
            self.watching = True
            self._hub.poller.call_soon(self._set_timer)

    # on the poller's thread

    def _set_timer(self) -> None:
        timeout: float = config.value("heartbeat_timeout")
        self.watching = bool(timeout)
        if timeout and self._timer is None:
            self._timer = self._hub.poller.call_later(timeout / TICKS, self._look)

    def _look(self) -> None:
        self._timer = None
        # before looking: a request from here on sets the next timer itself
        self.watching = False
        if self.look():
            self._set_timer()

    def look(self) -> bool:
        """Ask after calls that have been here for 2, 4, 8, ... looks: a thread is missed before its
        call takes twice as long.

        Returns:
            Whether any are open.
        """
        requests = self._hub.requests.copy()
        calls = {
            number: call
            for number, request in requests.items()
            if (call := _unanswered(request)) is not None
        }
        self._looks = {number: self._looks.get(number, 0) + 1 for number in calls}
        for number, looks in self._looks.items():
            # ever more rarely: a call that takes hours costs no more than a few questions
            if looks > 1 and not looks & (looks - 1):
                for process in calls[number].silent:
                    send_record(self._hub, process, LookAfter(calls[number].uid))
        return bool(calls)


def _unanswered(request: Request) -> PendingCall | None:
    return request.unanswered() if isinstance(request, PendingOperation) else None
