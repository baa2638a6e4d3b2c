"""Finds actors that wait for each other. The rules, and why they hold, are in `supervision.deadlock`.

What is noted, and by whom: a thread, or task, that runs an endpoint notes itself in `Cell.waits` while it waits for a
future without a time limit. That is all that an ordinary call pays, some tenths of a microsecond. Everything else is
done on the poller's thread, once per `deadlock_check_interval` and only while something waits; a process in which
nothing waits has no timer.

What is no wait: one with a timeout, or in reach of one (`asyncio.timeout`); of a thread or task that the program
started itself, as the actor goes on without it; for a value on a port, which anyone may send; for the next answer of a
`stream`, which any rank may give; of the root client, which nobody calls.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import config
from ...errors import DeadlockError
from ..supervision.deadlock import Call, Chaser, Probe, Wait, WaitId, explain, keeper
from ..wire import pickling
from ..wire.address import SYSTEM, ProcAddress
from ..wire.frame import EXPLICIT, URGENT, Frame
from .message import decode_meta

if TYPE_CHECKING:
    from ..net.poller import Timer
    from .cell import Cell
    from .future import Future
    from .node import Node, Origin, Receiver, Request

_running = threading.local()
_NO_WAIT = nullcontext()


def enter_actor(cell: Cell) -> None:
    """The current thread runs this actor, for as long as it lives."""
    _running.cell = cell


def running_actor() -> Cell | None:
    """The actor whose own thread this is."""
    cell: Cell | None = getattr(_running, "cell", None)
    return cell


class Awaited(NamedTuple):
    """What a future waits for: a call, and the processes of the actor `uid` that have not answered it."""

    request: Request
    uid: int
    silent: Sequence[ProcAddress]


class BlockedWait:
    """An activity of an actor, the thread (None) or a task, has stopped until a future is done."""

    __slots__ = ("_cell", "activity", "began", "future")

    def __init__(self, cell: Cell, activity: object, future: Future[Any]) -> None:
        self._cell = cell
        self.activity = activity
        self.future = future
        self.began = time.time()

    def __enter__(self) -> None:
        self._cell.waits[self.activity] = self
        deadlocks = self._cell.node.deadlocks
        if not deadlocks.watching:
            deadlocks.watch()

    def __exit__(self, *exception: object) -> None:
        self._cell.waits.pop(self.activity, None)


def waiting(future: Future[Any]) -> AbstractContextManager[None]:
    """The current thread blocks until `future` is done, however long that takes."""
    cell = running_actor()
    return _NO_WAIT if cell is None else BlockedWait(cell, None, future)


def waiting_task(future: Future[Any]) -> AbstractContextManager[None]:
    """The current task does; that of an endpoint holds up the call, other tasks concern nobody."""
    cell = running_actor()
    if cell is None:
        return _NO_WAIT
    task = sys.modules["asyncio"].current_task()
    return BlockedWait(cell, task, future) if task in cell._active else _NO_WAIT


class DeadlockDetector:
    """Asks what keeps the calls that this process waits for, and answers that question for others."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._chaser = Chaser()
        self._timer: Timer | None = None
        self.watching = False

    def watch(self) -> None:
        """Something has begun to wait; on its thread."""
        if config.value("deadlock_check_interval"):
            self.watching = True
            self._node.poller.call_soon(self._set_timer)

    # on the poller's thread

    def _set_timer(self) -> None:
        interval = config.value("deadlock_check_interval")
        if self._timer is None and interval:
            self._timer = self._node.poller.call_later(interval, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        self.watching = False  # before looking: what begins to wait from here on sets the next timer itself
        requests = {id(request): number for number, request in list(self._node.requests.items())}
        waits: dict[WaitId, tuple[Cell, BlockedWait, Awaited]] = {}
        for cell, blocked, awaited in self._waits_for_calls():
            self.watching = True
            number = requests.get(id(awaited.request))
            if number is not None and not cell.may_cancel(blocked.activity):
                waits[WaitId(blocked.began, Call(self._node.address, number))] = cell, blocked, awaited
        if self.watching:
            self._set_timer()
        for wait_id, round_ in self._chaser.sweep(waits):
            self._send(self._chaser.ask(self._describe(wait_id, *waits[wait_id]), round_))

    def _waits_for_calls(self) -> Iterator[tuple[Cell, BlockedWait, Awaited]]:
        for actor in list(self._node.actors.values()):
            cell = _as_cell(actor)
            for blocked in () if cell is None else list(cell.waits.values()):
                awaited = _awaited(blocked)
                if cell is not None and awaited is not None:
                    yield cell, blocked, awaited

    def _describe(self, wait_id: WaitId, cell: Cell, blocked: BlockedWait, awaited: Awaited) -> Wait:
        source = blocked.future._source
        what = source.describe() if source is not None else "a call"
        silent = tuple((process, awaited.uid) for process in awaited.silent)
        return Wait(wait_id, silent, f"{cell.record}, {_doing(cell, blocked.activity)}, waits for {what}")

    def _send(self, probes: Sequence[Probe]) -> None:
        for probe in probes:
            if probe.process == self._node.address:
                self._node.poller.call_soon(functools.partial(self.receive, probe))
            else:
                content = pickling.dumps_call((probe,), {})
                self._node.cast([probe.process], SYSTEM, b"probe", content, flags=URGENT)

    def receive(self, probe: Probe) -> None:
        """Somebody asks what keeps a call from being answered by an actor of this process."""
        cell = _as_cell(self._node.actors.get(probe.actor))
        found = None if cell is None else self._keeper(cell, probe.call)
        if found is None:
            return
        wait, blocked = found
        if wait.id == probe.initiator:
            blocked.future._reject(DeadlockError(explain(probe.chain), probe.chain))
        else:
            self._send(self._chaser.pass_on(probe, wait))

    def _keeper(self, cell: Cell, call: Call) -> tuple[Wait, BlockedWait] | None:
        """The wait because of which an actor cannot answer a call."""
        waits = cell.waits.copy()
        queued = [Call(origin.peer, frame.request) for origin, frame in cell.queued()]
        handled = {activity: _owed(origin, frame) for activity, (origin, frame) in cell.active.items()}
        blocked = keeper(call, queued, handled, waits, cell.serving)
        awaited = _awaited(blocked) if blocked is not None else None
        if blocked is None or awaited is None or cell.may_cancel(blocked.activity):
            return None
        number = next((n for n, request in list(self._node.requests.items()) if request is awaited.request), None)
        if number is None or cell.waits.get(blocked.activity) is not blocked:  # it went on while this looked around
            return None
        wait_id = WaitId(blocked.began, Call(self._node.address, number))
        return self._describe(wait_id, cell, blocked, awaited), blocked


def _as_cell(actor: Receiver | None) -> Cell | None:
    """An actor, if it is one that may wait: not the root client, nor a process."""
    return actor if hasattr(actor, "waits") else None  # type: ignore[return-value]  # only a cell has them


def _awaited(blocked: BlockedWait) -> Awaited | None:
    """The call that keeps a wait from ending; None if it waits for something else, or has its answer."""
    future = blocked.future
    return None if future._done or future._source is None else future._source.awaited()


def _owed(origin: Origin, frame: Frame) -> Call | None:
    """A call that only its handler can answer. One with a response port may be answered by whoever has that by now."""
    return None if frame.flags & EXPLICIT else Call(origin.peer, frame.request)


def _doing(cell: Cell, activity: object) -> str:
    """In words, what an actor does in an activity."""
    active = cell.active
    handled = active.get(activity) or active.get(cell.serving)
    if handled is not None:
        return f"in {decode_meta(handled[1].meta)[0]}()"
    return "in __init__()" if cell.actor is None else "in a hook"
