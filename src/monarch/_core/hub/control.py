"""Sending control records to processes, and waiting for a single answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..calls.failed_call import Reply
from ..supervision.failure import Failure
from ..wire import pickling
from ..wire.address import SYSTEM, ProcAddress
from ..wire.frame import Frame
from .contracts import Hub, Request
from .control_records import name_on_wire


def send_record(
    hub: Hub,
    to: ProcAddress | Sequence[ProcAddress],
    record: tuple[Any, ...],
    request: Request | None = None,
    sender: int = 0,
    flags: int = 0,
    ranks: Sequence[int] | None = None,
) -> None:
    """Send a control record to one process, or to several. For errors see `Hub.cast`.

    Args:
        to: One that has ended fails the request, which is how the end of a receiver is told.
        request: Gets the answers; None where no answer is waited for.
        sender: Id of the actor that asks, if that matters to the receiver.
        flags: Of the call: `URGENT`, `STANDING`.
        ranks: Rank that each receiver is told; by default its index.
    """
    procs = [to] if isinstance(to, ProcAddress) else to
    content = pickling.dumps_call(tuple(record), {})
    hub.cast(procs, SYSTEM, name_on_wire(type(record)), content, request, sender, flags, ranks)


def ask_one(
    hub: Hub,
    to: ProcAddress,
    record: tuple[Any, ...],
    take: Callable[[Reply], None],
    flags: int = 0,
) -> None:
    """Send a control record to one process; `take` gets its answer, see `SingleAnswer`."""
    send_record(hub, to, record, SingleAnswer(to, take), flags=flags)


class SingleAnswer:
    """A request with one receiver and one answer: what it says, or that it has ended.

    Args:
        receiver: The receiver; its end is an answer, too.
        take: Called with the answer, once, on the thread that reads it.
    """

    __slots__ = ("_receiver", "_take")

    def __init__(self, receiver: ProcAddress, take: Callable[[Reply], None]) -> None:
        self._receiver = receiver
        self._take = take

    def reply(self, frame: Frame) -> bool:
        self._take(frame)
        return True

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        if address != self._receiver:
            return False
        self._take(failure)
        return True
