"""Failures that the program has got as the answer to a call.

If they then stay unhandled, the program need not be told once more.
"""

from __future__ import annotations

from collections import deque

from ..supervision.failure import Failure
from ..wire import pickling
from ..wire.frame import DEAD, Frame

# characters of a reason, enough to know it by; it begins in other words for each actor of a process
_END = 200

_told: deque[tuple[str, int, str, str]] = deque(maxlen=1024)


def loss(reply: Frame | Failure) -> Failure | None:
    """Why the rank is gone, where a reply says that."""
    if isinstance(reply, Failure):
        return reply
    failure: Failure | None = pickling.loads(reply.payload) if reply.flags == DEAD else None
    return failure


def note(reply: Frame | Failure) -> None:
    """The program is about to see the error of this reply."""
    lost = loss(reply)
    if lost is not None:
        _told.append((lost.host, lost.pid, lost.cause, lost.reason[-_END:]))


def knows(failure: Failure) -> bool:
    """Return whether the program has seen this failure, or that of the process behind it."""
    return any(
        (host, pid, cause) == (failure.host, failure.pid, failure.cause)
        and failure.reason.endswith(reason)
        for host, pid, cause, reason in _told.copy()
    )
