"""What the actors of a process do right now, for those who look at it from outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..._namedtuple import NamedTuple
from ..calls.message import decode_meta
from ..calls.pending import FutureState, operation_of
from ..calls.waiting import waited_for
from .cell import ActorCell

if TYPE_CHECKING:
    from ..hub.message_hub import MessageHub


class Activity(NamedTuple):
    """A call that an actor has begun to handle.

    Attributes:
        thread: Of the actor, as `threading.get_ident` has it.
        actor: Its name.
        endpoint: What was called.
        task: The task of its event loop that handles the call; None where its thread does.
        waits_for: In words; empty if it does not wait for a future, or only for a time.
    """

    thread: int | None
    actor: str
    endpoint: str
    task: object
    waits_for: str


def activities(hub: MessageHub) -> list[Activity]:
    """The calls that are being handled in this process; on any thread."""
    return [each for cell in list(hub.actors.values()) if isinstance(cell, ActorCell) for each in _of(cell)]


def waits() -> list[str]:
    """What threads and tasks of this process wait for, in words."""
    return [_describe(future) for future in waited_for.copy()]


def _of(cell: ActorCell) -> Iterator[Activity]:
    noted = cell.waits.copy()
    for task, (_, frame) in cell.active.items():
        waits_for = _describe(noted[task][0]) if task in noted else ""
        yield Activity(cell.thread, cell.record.name, decode_meta(frame.meta)[0], task, waits_for)


def _describe(future: FutureState) -> str:
    operation = operation_of(future)
    return operation.describe() if operation is not None else ""
