"""A record of the lives of actors and procs, kept by the process that saw them.

Always on; holds no messages.
"""

from __future__ import annotations

import time
from collections import deque

from ..._namedtuple import NamedTuple
from ..supervision.failure import Failure
from ..wire.address import SYSTEM, ProcAddress
from .black_box import BlackBox, BoxEvent

CREATED, INITIALIZING, IDLE, STOPPING, STOPPED, FAILED = (
    "Created", "Initializing", "Idle", "Stopping", "Stopped", "Failed"
)  # fmt: skip

_LONGEST = 1_000  # characters of a reason


class LifeEvent(NamedTuple):
    """One actor, or a proc (actor id `SYSTEM`), has a new status.

    Attributes:
        time: Nanoseconds since 1970.
        reason: Why; empty where nothing needs to be said.
    """

    time: int
    address: ProcAddress
    uid: int
    status: str
    reason: str


# half a kB each, unless their reasons are long
_events: deque[LifeEvent] = deque(maxlen=5_000)

box: BlackBox | None = None
"""That of this process; only procs have one."""


def black_box() -> BlackBox | None:
    """The black box of this process."""
    return box


def remember(address: ProcAddress, uid: int, status: str, reason: str = "") -> None:
    """Note what happens to an actor; on any thread."""
    event = LifeEvent(time.time_ns(), address, uid, status, reason[:_LONGEST])
    _events.append(event)
    if box is not None and uid != SYSTEM:  # of procs their agent knows
        box.happened(BoxEvent(event.time, uid, status, event.reason))


def remember_end(address: ProcAddress, failure: Failure, uid: int = SYSTEM) -> None:
    """Note that an actor was stopped, or has failed."""
    remember(address, uid, STOPPED if failure.is_stop else FAILED, failure.reason)


def life_events() -> list[LifeEvent]:
    """Return the remembered events, the latest last."""
    return list(_events)
