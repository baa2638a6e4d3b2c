"""Finds actors that wait for each other.

The rules, and why they hold, are in `supervision.deadlock`.

Waits are noted by the waiting side (`waits`). Everything else is done on the poller's thread, once
per `deadlock_check_interval` and only while something waits; a process in which nothing waits has
no timer.

Not counted as waits: one with a timeout, or in reach of one (`asyncio.timeout`); of a thread or
task that the program started itself, as the actor goes on without it; for a value on a port, which
anyone may send; for the next answer of a `stream`, which any rank may give; of the root client,
which no actor calls.

A wait for room in a full mailbox (`pressure`) is a wait for the actor that owns the mailbox. A
circle with one in it needs no error: the one who sends is let go, and the mailbox takes more than
it should.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ... import config
from ..._lazy import note
from ..._namedtuple import NamedTuple
from ...errors import DeadlockError
from ..calls.message import decode_meta
from ..calls.pending import PendingCall, operation_of
from ..calls.promise import Promise
from ..calls.waits import WaitRecord
from ..hub.control import send_record
from ..hub.control_records import AskWhatKeeps, LetGo
from ..supervision.deadlock import CallId, Chaser, Probe, Wait, WaitId, explain, keeper
from ..wire.frame import EXPLICIT, Frame
from .cell import ActorCell, actors_of

if TYPE_CHECKING:
    from ..hub.contracts import Origin
    from ..hub.message_hub import MessageHub
    from ..net.poller import Timer


class BlockedWait(NamedTuple):
    """A wait for a call, looked up."""

    cell: ActorCell
    activity: object
    noted: WaitRecord
    awaited: PendingCall


class DeadlockDetector:
    """Asks what keeps the calls that this process waits for, and answers when others ask."""

    def __init__(self, hub: MessageHub) -> None:
        self._hub = hub
        self._chaser = Chaser()
        self._timer: Timer | None = None
        self.watching = False

    def watch(self) -> None:
        """Something has begun to wait; on its thread."""
        if config.value("deadlock_check_interval"):
            self.watching = True
            self._hub.poller.call_soon(self._set_timer)

    # on the poller's thread

    def _set_timer(self) -> None:
        interval = config.value("deadlock_check_interval")
        if self._timer is None and interval:
            self._timer = self._hub.poller.call_later(interval, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        # before looking: what begins to wait from here on sets the next timer itself
        self.watching = False
        numbers = numbers_of(self._hub)
        waits: dict[WaitId, BlockedWait] = {}
        for cell in actors_of(self._hub):
            for blocked in self._waits_for_calls(cell):
                number = numbers.get(id(blocked.awaited.request))
                if number is not None:
                    waits[self._id(blocked, number)] = blocked
        if self.watching:
            self._set_timer()
        for wait_id, round_ in self._chaser.sweep(waits):
            self._send(self._chaser.ask(_described(wait_id, waits[wait_id]), round_))

    def _waits_for_calls(self, cell: ActorCell) -> Iterator[BlockedWait]:
        limited = cell.limited()
        for activity, noted in cell.waits.copy().items():
            awaited = _awaited(noted)
            if awaited is not None:
                self.watching = True  # also for a wait with a limit now: it may lose that later
                if not _is_limited(activity, limited):
                    yield BlockedWait(cell, activity, noted, awaited)

    def _id(self, blocked: BlockedWait, number: int) -> WaitId:
        return WaitId(blocked.noted[1], CallId(self._hub.address, number))

    def _send(self, probes: Sequence[Probe]) -> None:
        for probe in probes:
            if probe.process == self._hub.address:
                self.receive(probe)
            else:  # it follows the call on its way, and so finds it there
                send_record(self._hub, probe.process, AskWhatKeeps(probe))

    def receive(self, probe: Probe) -> None:
        """Take the question what keeps a call to a local actor unanswered; on any thread."""
        self._hub.poller.call_soon(functools.partial(self._chase, probe))

    def _chase(self, probe: Probe) -> None:
        cell = self._hub.actors.get(probe.actor)
        # else the root client, or a process, which do not wait
        blocked = _keeper(cell, probe.call) if isinstance(cell, ActorCell) else None
        if blocked is None:
            return
        number = numbers_of(self._hub).get(id(blocked.awaited.request))
        if number is None:  # the answer is here
            return
        wait_id = self._id(blocked, number)
        if wait_id == probe.initiator:
            self._break(probe, blocked)
        else:
            self._send(self._chaser.pass_on(probe, _described(wait_id, blocked)))

    def _break(self, probe: Probe, youngest: BlockedWait) -> None:
        """Give up one wait of a circle.

        One for room in a mailbox if there is any, as the program need not hear of that.
        """
        for wait in probe.path:
            if _is_for_room(wait.call):
                send_record(self._hub, wait.call.process, LetGo(wait.call.request))
                return
        text = explain(probe.chain)
        note("failures", "a wait is given up: %s", text)
        Promise.of(youngest.noted[0]).reject(DeadlockError(text, probe.chain))


def numbers_of(hub: MessageHub) -> dict[int, int]:
    """The numbers of the open requests of a process, by their `id`."""
    return {id(request): number for number, request in hub.requests.copy().items()}


def _is_for_room(call: CallId) -> bool:
    return call.request < 0


def _keeper(cell: ActorCell, call: CallId) -> BlockedWait | None:
    """The wait because of which an actor cannot answer a call."""
    # it begins when that has answered
    if cell.gate is not None and cell.gate.bootstrap is not None:
        cell = cell.gate.bootstrap
        call = next(
            (owed for each in cell.active.values() if (owed := _owed(*each)) is not None), call
        )
    waits = cell.waits.copy()
    if _is_for_room(call):
        queued = [call] if call.process in cell.pressure.paused else []
    else:
        queued = [CallId(origin.peer, frame.request) for origin, frame in cell.queued()]
    handled = {activity: _owed(origin, frame) for activity, (origin, frame) in cell.active.items()}
    activity = keeper(call, queued, handled, waits, cell.serving)
    noted = waits.get(activity)
    awaited = None if noted is None else _awaited(noted)
    if noted is None or awaited is None or _is_limited(activity, cell.limited()):
        return None
    if cell.waits.get(activity) is not noted:  # it went on while this looked around
        return None
    return BlockedWait(cell, activity, noted, awaited)


def _owed(origin: Origin, frame: Frame) -> CallId | None:
    """A call that only its handler can answer.

    One with a response port may be answered by any actor that was given the port.
    """
    return None if frame.flags & EXPLICIT else CallId(origin.peer, frame.request)


def _awaited(noted: WaitRecord) -> PendingCall | None:
    """The call that keeps a wait from ending; None if it is for something else, or over."""
    operation = operation_of(noted[0])
    return None if operation is None else operation.awaited()


def _is_limited(activity: object, limited: Collection[object] | None) -> bool:
    return activity is not None and (limited is None or activity in limited)


def _described(wait_id: WaitId, blocked: BlockedWait) -> Wait:
    cell, activity, (future, _), awaited = blocked
    operation = operation_of(future)
    what = operation.describe() if operation is not None else "a call"
    silent = tuple((process, awaited.uid) for process in awaited.silent)
    return Wait(wait_id, silent, f"{cell.record}, {_doing(cell, activity)}, waits for {what}")


def _doing(cell: ActorCell, activity: object) -> str:
    """Describe what an actor does in an activity."""
    active = cell.active
    handled = active.get(activity) or active.get(cell.serving)
    # its thread was stopped by one of its tasks
    calls = active.values() if handled is None else [handled]
    names = sorted({f"{decode_meta(frame.meta)[0]}()" for _, frame in calls})
    if names:
        return "in " + " or ".join(names)
    return "in __init__()" if cell.actor is None else "in a hook"
