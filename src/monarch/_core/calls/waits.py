"""The waits of this process that may never end: the waiting actor, the future, and the actors that
owe answers.

`deadlock` looks at them.

A thread, or task, that runs an endpoint notes itself in the `waits` of its actor while it waits for
a future without a time limit. That is all that an ordinary call pays, some tenths of a microsecond.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from ..wire.address import ActorAddress
from .pending import FutureState

WaitRecord = tuple[FutureState, float]
"""A wait: the future, and when the wait began."""


class Detector(Protocol):
    """The detector of deadlocks in this process."""

    watching: bool

    def watch(self) -> None:
        """Something has begun to wait; on its thread."""


class Waiter(Protocol):
    """An actor, as one that waits.

    Attributes:
        uid: Its id.
        waits: Its waits, by task of its loop; under None for that of its thread.
        detector: Who looks at that.
    """

    uid: int
    waits: dict[object, WaitRecord]
    detector: Detector

    @property
    def address(self) -> ActorAddress: ...

    def holds_up(self, task: object) -> bool:
        """Return whether calls of the actor wait while this task does."""


class _Running(threading.local):
    actor: Waiter | None = None


_running = _Running()


def enter_actor(actor: Waiter) -> None:
    """The current thread runs this actor, for as long as it lives."""
    _running.actor = actor


def running_actor() -> Waiter | None:
    """Return the actor that owns the current thread."""
    return _running.actor


def note_wait(future: FutureState, task: object = None) -> dict[object, WaitRecord] | None:
    """The current thread, or `task` on it, is about to wait for `future`, however long that takes.

    Only tasks of endpoints hold up callers; other tasks, and threads that are no actor's, do not.

    Returns:
        Where that was noted, under `task`, and is to be taken out after the wait.
    """
    actor = _running.actor
    if actor is None or (task is not None and not actor.holds_up(task)):
        return None
    waits = actor.waits
    waits[task] = future, time.time()
    detector = actor.detector
    if not detector.watching:
        detector.watch()
    return waits


class Prelude(Protocol):
    """A condition of reading an answer: in the client, the output of ranks is shown first."""

    def wait(self, timeout: float | None) -> None: ...

    async def wait_in_loop(self) -> None: ...
