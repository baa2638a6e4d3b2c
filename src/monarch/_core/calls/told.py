"""Failures that the program has got as the answer to a call.

Where nobody handles them, that is no news to it.
"""

from __future__ import annotations

from collections import deque

from ..supervision.failure import Failure
from ..wire import pickling
from ..wire.frame import DEAD, Frame

# characters of a reason, enough to know it by; it begins in other words for each actor of a process
_END = 200

_told: deque[tuple[str, int, str, str]] = deque(maxlen=1024)


def note(reply: Frame | Failure) -> None:
    """The program is about to see the error of this reply."""
    if isinstance(reply, Frame):
        if reply.flags != DEAD:
            return
        reply = pickling.loads(reply.payload)
        assert isinstance(reply, Failure)
    _told.append((reply.host, reply.pid, reply.cause, reply.reason[-_END:]))


def knows(failure: Failure) -> bool:
    """Return whether the program has seen this failure, or that of the process behind it."""
    return any(
        (host, pid, cause) == (failure.host, failure.pid, failure.cause)
        and failure.reason.endswith(reason)
        for host, pid, cause, reason in _told.copy()
    )
