"""The current activities of a process's actors, as seen from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .._core.actors.base_cell import BaseCell
from .._core.actors.cell import ActorCell, actors_of
from .._core.actors.deadlock import numbers_of
from .._core.calls.message import decode_meta
from .._core.calls.pending import FutureState, PendingCall, operation_of
from .._core.calls.waiting import waited_for
from .._core.wire.address import ProcAddress
from .._namedtuple import NamedTuple

if TYPE_CHECKING:
    from .._core.hub.message_hub import MessageHub


_NO_CALL = PendingCall(None, 0, ())

other_waits: dict[int, tuple[float, str]] = {}
"""What threads wait for that is no future, as machines of a job: since when, in seconds since 1970,
and in words; by `threading.get_ident`.
"""


class Activity(NamedTuple):
    """A call that an actor has begun to handle.

    Attributes:
        thread: Of the actor, as `threading.get_ident` has it.
        actor: Its name.
        endpoint: The endpoint that was called.
        task: The task of its event loop that handles the call; None where its thread does.
        waits_for: In words; empty if it does not wait for a future, or only for a time.
        actor_id: Of the actor.
        call: Identifies the call, by its caller, request and rank: no other that the process
            handles. Empty for a one-way message.
        since: When that began, in seconds since 1970; None where it was less than a second ago.
    """

    thread: int | None
    actor: str
    endpoint: str
    task: object
    waits_for: str
    actor_id: int
    call: str
    since: float | None


def activities(hub: MessageHub) -> list[Activity]:
    """The calls that are being handled in this process; on any thread."""
    return [each for cell in actors_of(hub) for each in _of(cell)]


def longest(cell: ActorCell) -> tuple[str | None, int | None]:
    """The endpoint an actor has run longest, and when it began.

    Microseconds since 1970, where that is over about a second ago.
    """
    pulse = cell.hub.pulse
    found = [
        (pulse.since(cell.uid, item), decode_meta(item[1].meta)[0]) for item in cell.active.values()
    ]
    if not found:
        return None, None
    since, endpoint = min(found, key=lambda each: (each[0] is None, each[0] or 0))
    return endpoint, since // 1000 if since is not None else None


class Blocked(NamedTuple):
    """A wait for a future.

    Attributes:
        actor: Which waits; None where that is not noted: a wait with a time limit, or outside of
            actors.
        task: Of its event loop; None where its thread waits.
        since: Seconds since 1970.
        waits_for: In words.
        uid: Id of the actors that owe an answer; 0 if it waits for something else.
        silent: Their processes.
        request: Number of the call that they owe it to, in this process; 0 for none.
    """

    actor: ActorCell | None
    task: object
    since: float
    waits_for: str
    uid: int
    silent: Sequence[ProcAddress]
    request: int


def blocked(hub: MessageHub) -> list[Blocked]:
    """List the waits of all threads and tasks of this process. Safe on any thread."""
    found, noted = [], set()
    numbers = numbers_of(hub)
    for cell in actors_of(hub):
        for task, (future, since) in cell.waits.copy().items():
            noted.add(future)
            found.append(_blocked(cell, task, since, future, numbers))
    return found + [
        _blocked(None, None, since, future, numbers)
        for future, since in waited_for.copy().items()
        if future not in noted
    ]


def owners_of(hub: MessageHub) -> list[BaseCell]:
    """The cells of this process that may own meshes: its actors, and the client."""
    return [each for each in list(hub.actors.values()) if isinstance(each, BaseCell)]


def _blocked(
    cell: ActorCell | None, task: object, since: float, future: FutureState, numbers: dict[int, int]
) -> Blocked:
    operation = operation_of(future)
    owed = (operation.unanswered() if operation is not None else None) or _NO_CALL
    number = numbers.get(id(owed.request), 0)
    return Blocked(cell, task, since, _describe(future), owed.uid, owed.silent, number)


def _of(cell: ActorCell) -> Iterator[Activity]:
    noted = cell.waits.copy()
    for task, item in cell.active.items():
        origin, frame = item
        since = cell.hub.pulse.since(cell.uid, item)
        waits_for = _describe(noted[task][0]) if task in noted else ""
        call = f"{origin.peer} {frame.request} {frame.rank}" if frame.request else ""
        yield Activity(
            cell.thread, cell.record.name, decode_meta(frame.meta)[0], task, waits_for, cell.uid,
            call, None if since is None else since / 1e9,
        )  # fmt: skip


def _describe(future: FutureState) -> str:
    operation = operation_of(future)
    return operation.describe() if operation is not None else ""
