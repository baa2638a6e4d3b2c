"""Questions to a process itself, and their answers: the control messages beside the data."""

from __future__ import annotations

import time
from typing import Any

from ..._core import plane
from ...actor import Future, MeshFailure
from ..errors import BufferAccessError, BufferDroppedError, OwnerLostError
from .records import Open, Refusal, here

_QUIET = 0.2
"""Seconds after which a thread that waits for an owner asks whether it is there, and then again and
again.
"""


def ask(
    hub: plane.Hub, address: plane.ProcAddress, record: tuple[Any, ...], what: str
) -> Future[Any]:
    """Send a record to a process.

    The future of its answer raises `OwnerLostError` where the process is gone.
    """
    promise: plane.Promise[Any] = plane.Promise(f"{what} from {address}")
    plane.ask_one(hub, address, record, lambda answer: promise.resolve(answer, _read))
    return promise.future


def _read(answer: plane.Reply) -> Any:
    return plane.read_answer(answer, owner_lost)


def ask_for_life(hub: plane.Hub, address: plane.ProcAddress) -> Future[Any]:
    """Send a question without content.

    Where no answer comes, its future raises `OwnerLostError` with the reason, if there is one.
    """
    return ask(hub, address, Open(here(), ()), "a sign of life")


class OwnerWatch:
    """Notices the end of an owner, even if it takes no part in the transfer.

    The end of a process is noticed only while it owes an answer. So one is asked for, and not
    waited for.
    """

    __slots__ = ("_address", "_answer", "_ask_at", "_hub")

    def __init__(self, hub: plane.Hub, address: plane.ProcAddress) -> None:
        self._hub = hub
        self._address = address
        self._answer: Future[Any] | None = None
        self._ask_at = time.monotonic() + _QUIET

    def check(self) -> None:
        """Raises OwnerLostError if it has ended, or can't be reached."""
        if self._answer is not None and self._answer.done():
            # raises where the owner has ended
            self._answer.get()
            self._answer, self._ask_at = None, time.monotonic() + _QUIET
        if self._answer is None and time.monotonic() >= self._ask_at:
            self._answer = ask_for_life(self._hub, self._address)


def owner_lost(failure: plane.Failure) -> OwnerLostError:
    """The error for a process that has ended."""
    return OwnerLostError(
        f"the process that owns the memory is gone: {failure.explain()}", None, MeshFailure(failure)
    )


def refused(refusal: Refusal) -> BufferDroppedError | BufferAccessError:
    """The error for an owner's refusal."""
    if refusal.dropped:
        return BufferDroppedError(f"the buffer is no longer there: {refusal.reason}")
    return BufferAccessError(f"the owner refused: {refusal.reason}")
