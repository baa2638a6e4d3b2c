"""Control requests to a process with actors: spawn, stop, and end with its owner."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from ...errors import BackpressureError
from ..calls.message import answer_to
from ..calls.pending import countdown
from ..hub import control_records as records
from ..hub.contracts import Origin
from ..hub.control import ask_one
from ..hub.control_service import ControlRequest, ControlService, handles
from ..hub.message_hub import MessageHub
from ..hub.open_response import ANSWERED
from ..hub.spawn_requests import SpawnSpec
from ..hub.statistics import statistics_of
from ..net.poller import guarded
from ..supervision.failure import STOPPED, Failure
from ..wire.address import AGENT, ProcAddress
from ..wire.frame import ERROR, Frame
from . import log
from .base_cell import BaseCell
from .cell import ActorCell
from .context import note_thread_starters
from .deadlock import DeadlockDetector
from .gate import Gate
from .pulse import ActorPulse
from .sync_cell import SyncCell

if TYPE_CHECKING:
    from .async_cell import AsyncCell


class ProcService(ControlService):
    """The service of a process that can run actors: every proc, and the client."""

    def __init__(self, hub: MessageHub) -> None:
        super().__init__(hub)
        self._detector = hub.detector = DeadlockDetector(hub)
        self._cells: dict[int, ActorCell] = {}
        hub.pulse = ActorPulse(hub, lambda: self.cells)
        self._gate: Gate | None = None
        self._bootstrap_error: bytes | None = None
        hub.inbound_lost_hooks.append(self._requester_lost)
        hub.peer_lost_hooks.append(self._peer_lost)

    @property
    def cells(self) -> list[ActorCell]:
        """Every actor that has not ended yet."""
        return list(self._cells.values())

    def spawn(
        self,
        spec: SpawnSpec,
        is_async: bool,
        rank: int,
        init: tuple[Any, list[Any]],
        on_failed: Callable[[Failure], None] | None = None,
    ) -> ActorCell:
        """Create one actor; it takes messages from now on, and handles them once it is started."""
        note_thread_starters()
        log.install()
        cell = self.cell_class(is_async)(self.hub, spec, rank, init, on_failed)
        cell.on_finished = lambda: self._forget(cell)
        self._cells[spec.uid] = cell
        # last: from here on messages come in, on this thread or another
        self.hub.register(spec.uid, cell)
        return cell

    def cell_class(self, is_async: bool) -> type[SyncCell | AsyncCell]:
        if not is_async:
            return SyncCell
        # brings asyncio, which a program of sync actors never needs
        from .async_cell import AsyncCell

        return AsyncCell

    @handles(records.GetStatistics)
    def _statistics(self, request: ControlRequest, record: records.GetStatistics) -> None:
        request.answer(statistics_of(self.hub, [len(cell.queued()) for cell in self.cells]))

    def _forget(self, cell: ActorCell) -> None:
        if self._cells.get(cell.uid) is cell:  # not a later incarnation
            del self._cells[cell.uid]

    @handles(records.SpawnActor)
    def _spawn_actor(self, request: ControlRequest, record: records.SpawnActor) -> None:
        spec, gated = record.spec, record.gated
        stopped = self.hub.fate(self.hub.address, spec.uid)
        known = self._cells.get(spec.uid)
        # before it was there; or the next incarnation has overtaken it, which is sent urgently
        if stopped is not None or (known is not None and known.incarnation > spec.incarnation):
            request.answer()
            return
        waiting: list[tuple[Origin, Frame]] = []
        if known is not None and known.gate is not None:  # it never began: the next one goes on
            known.discard(lambda origin, frame: waiting.append((origin, frame)))
        elif known is not None:  # the former incarnation's stop came before its spawn, to no effect
            why = Failure(STOPPED, "it starts again", str(known.record), restarts=True)
            known.end(why._replace(incarnation=known.incarnation))
        rank = request.rank if spec.rank is None else spec.rank
        cell = self.spawn(spec, record.is_async, rank, (record.payload, record.buffers))
        for origin, frame in waiting:
            cell.receive(origin, frame)
        gate = self._gate
        if not gated or (gate is not None and gate.lets_pass(spec)):
            if gate is not None and not gated:
                gate.open_for(cell)
            cell.try_to_start()
            request.answer()
        elif gate is not None:
            gate.hold(cell, request)
        else:
            self._pass_gate(cell, request)

    @handles(records.CloseGate)
    def _close_gate(self, request: ControlRequest, record: records.CloseGate) -> None:
        self._gate = Gate()

    @handles(records.OpenGate)
    def _open_gate(self, request: ControlRequest, record: records.OpenGate) -> None:
        self._bootstrap_error = record.error
        gate, self._gate = self._gate, None
        for held in gate.held if gate is not None else ():
            self._pass_gate(*held)

    def _pass_gate(self, cell: ActorCell, request: ControlRequest) -> None:
        error = self._bootstrap_error
        cell.gate = None
        if error is None:
            cell.try_to_start()
            request.answer()
            return
        refuser = _Refuser(error)
        cell.discard(refuser.receive)
        # calls that came before, and later ones, get the error of the bootstrap function, not that
        # there is no such actor
        self.hub.register(cell.uid, refuser)
        refuser.receive(request.origin, request.frame)

    @handles(records.StopActor)
    def _stop_actor(self, request: ControlRequest, record: records.StopActor) -> None:
        uid, reason, again = record
        cell = self._cells.get(uid)

        def ended() -> None:
            if not again and self.hub.fate(self.hub.address, uid) is None:
                # the stop has overtaken the spawn, or ends the wait for a restart
                stopped = Failure(STOPPED, reason)
                self.hub.actors.remember(self.hub.address, uid, stopped)
                self.hub.actors.refuse_early(uid, stopped)
            request.answer()

        if cell is None:
            ended()
        else:
            failure = Failure(
                STOPPED, reason, str(cell.record), restarts=again, incarnation=cell.incarnation
            )
            cell.stop(failure, ended)

    @handles(records.GetIncarnation)
    def _incarnation(self, request: ControlRequest, record: records.GetIncarnation) -> None:
        cell, receiver = self._cells.get(record.uid), self.hub.actors.get(record.uid)
        if cell is not None:
            request.answer(cell.incarnation)
        elif isinstance(receiver, _Refuser):
            receiver.receive(request.origin, request.frame)
        else:
            self.hub.actors.unknown(request.origin, request.frame, record.uid)

    @handles(records.ProcsEnded)
    def _procs_ended(self, request: ControlRequest, record: records.ProcsEnded) -> None:
        def forget() -> None:
            for address, failure in record.ended:
                self.hub.forget_peers([address], failure)

        # the agent's word may be here before the last messages of the ended process
        self.hub.poller.call_when_read(forget)

    @handles(records.LookAfter)
    def _look_after(self, request: ControlRequest, record: records.LookAfter) -> None:
        cell = self._cells.get(record.uid)
        if cell is not None:
            cell.miss_thread()

    @handles(records.AskWhatKeeps)
    def _what_keeps(self, request: ControlRequest, record: records.AskWhatKeeps) -> None:
        self._detector.receive(record.probe)

    @handles(records.LetGo)
    def _let_go(self, request: ControlRequest, record: records.LetGo) -> None:
        self.hub.full.let_go(record.wait)

    @handles(records.PortNews)
    def _port_news(self, request: ControlRequest, record: records.PortNews) -> None:
        key = record.caller, record.request, record.rank
        call = self.hub.open_responses.get(key)
        if record.news == ANSWERED:
            self.hub.open_responses.pop(key, None)
        elif call is not None:
            call.hear(request.peer, record.news, record.message, record.ranks)

    def stop_all(self, why: Failure, done: Callable[[], None]) -> None:
        """Stop every actor here, and call `done` when all have ended.

        On the poller's thread, and within `cleanup_timeout`.
        """
        cells = self.cells
        # actors end on their own threads
        ended = countdown(len(cells), lambda: self.hub.poller.call_soon(done))
        why = why._replace(host=self.hub.address.host)
        for cell in cells:
            cell.stop(why._replace(actor=str(cell.record)), ended)

    def _requester_lost(self, address: ProcAddress) -> None:
        """A process is gone that talked to this one: what its actors owned here goes with it."""
        for cell in self.cells:
            if cell._spec.owner.proc == address:
                reason = f"its owner's process {address.proc} is gone"
                cell.end(Failure(STOPPED, reason, str(cell.record)))
        for call in list(self.hub.open_responses.values()):
            if address in call.holders:  # how it has ended is its answer
                ask_one(self.hub, address, records.Ping(), partial(call.process_gone, address))

    def _peer_lost(self, address: ProcAddress, failure: Failure) -> None:
        actors = [actor for actor in list(self.hub.actors.values()) if isinstance(actor, BaseCell)]
        # with a host goes all that runs on it, also procs that were never called from here
        if address.proc == AGENT:
            owned = {proc for actor in actors for proc in actor.ownership.processes()}
            self.hub.forget_peers([proc for proc in owned if proc.agent == address], failure)
        for actor in actors:
            guarded(actor.proc_failed, address, failure)


class _Refuser:
    """Stands for an actor of a proc with a failed bootstrap function: callers get that error."""

    def __init__(self, error: bytes) -> None:
        self._error = error

    def receive(self, origin: Origin, frame: Frame) -> None:
        if frame.request:
            with suppress(BackpressureError):
                origin.send(answer_to(frame, ERROR, self._error))


def spawn_record(
    spec: SpawnSpec, is_async: bool, init: tuple[bytes, Any], gated: bool = True
) -> records.SpawnActor:
    """Return the record of a spawn.

    Large constructor arguments stay out of band, though they were pickled before.
    """
    payload, buffers = init
    return records.SpawnActor(
        spec, is_async, PickleBuffer(payload), [PickleBuffer(buffer) for buffer in buffers], gated
    )
