"""What a process that runs actors does on request: spawn, stop, and end with its owner."""

from __future__ import annotations

from collections.abc import Callable
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from ..calls.countdown import countdown
from ..hub.contracts import Origin
from ..hub.node import Node
from ..hub.statistics import statistics_of
from ..hub.system import System
from ..supervision.deadlock import Probe
from ..supervision.failure import MISSING, STOPPED, Failure
from ..wire import pickling
from ..wire.address import AGENT, ProcAddress
from ..wire.frame import ERROR, REPLY, Frame
from . import log
from .base_cell import BaseCell
from .cell import Cell, SpawnSpec
from .context import note_thread_starters
from .deadlock import DeadlockDetector
from .gate import Gate
from .sync_cell import SyncCell

if TYPE_CHECKING:
    from .async_cell import AsyncCell


class ProcSystem(System):
    """In every proc, and in the client, whose process can run actors too."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._detector = node.detector = DeadlockDetector(node)
        self._cells: dict[int, Cell] = {}
        self._gate: Gate | None = None
        self._bootstrap_error: bytes | None = None
        node.inbound_lost_hooks.append(self._requester_lost)
        node.peer_lost_hooks.append(self._peer_lost)

    @property
    def cells(self) -> list[Cell]:
        """Every actor that has not ended yet."""
        return list(self._cells.values())

    def spawn(
        self,
        spec: SpawnSpec,
        is_async: bool,
        rank: int,
        init: tuple[Any, list[Any]],
        on_failed: Callable[[Failure], None] | None = None,
    ) -> Cell:
        """Create one actor; it takes messages from now on, and handles them once it is started."""
        note_thread_starters()
        log.install()
        cell = _cell_class(is_async)(self.node, spec, rank, init, on_failed)
        cell.on_finished = lambda: self._forget(cell)
        self._cells[spec.uid] = cell
        self.node.register(spec.uid, cell)
        return cell

    def on_statistics(self, origin: Origin, frame: Frame) -> None:
        """What this process has counted; see `ProcStatistics`."""
        self.answer(origin, frame, statistics_of(self.node, [len(cell.queued()) for cell in self.cells]))

    def _forget(self, cell: Cell) -> None:
        if self._cells.get(cell.uid) is cell:  # not a later incarnation
            del self._cells[cell.uid]

    def on_spawn(
        self,
        origin: Origin,
        frame: Frame,
        spec: SpawnSpec,
        is_async: bool,
        payload: Any,
        buffers: list[Any],
        gated: bool,
    ) -> None:
        stopped = self.node.fate(self.node.address, spec.uid)
        if stopped is not None:  # before it was there
            self.answer(origin, frame)
            return
        rank = frame.rank if spec.rank is None else spec.rank
        cell = self.spawn(spec, is_async, rank, (payload, buffers))
        gate = self._gate
        if not gated or (gate is not None and gate.lets_pass(spec)):
            if gate is not None and not gated:
                gate.open_for(cell)
            cell.try_to_start()
            self.answer(origin, frame)
        elif gate is not None:
            gate.hold(cell, origin, frame)
        else:
            self._pass_gate(cell, origin, frame)

    def on_close_gate(self, origin: Origin, frame: Frame) -> None:
        """Hold actors back until the bootstrap function has run."""
        self._gate = Gate()

    def on_open_gate(self, origin: Origin, frame: Frame, error: bytes | None) -> None:
        """The bootstrap function has run, or raised `error`, which is what every actor here answers from now on."""
        self._bootstrap_error = error
        gate, self._gate = self._gate, None
        for held in gate.held if gate is not None else ():
            self._pass_gate(*held)

    def _pass_gate(self, cell: Cell, origin: Origin, frame: Frame) -> None:
        error = self._bootstrap_error
        cell.gate = None
        if error is None:
            cell.try_to_start()
            self.answer(origin, frame)
            return
        refuser = _Refuser(error)
        cell.discard(refuser.receive)
        self.node.register(cell.uid, refuser)
        refuser.receive(origin, frame)

    def on_stop_actor(self, origin: Origin, frame: Frame, uid: int, reason: str, again: bool = False) -> None:
        """Stop one actor; for good, unless it is to be started `again`."""
        cell = self._cells.get(uid)

        def ended() -> None:
            if not again and self.node.fate(self.node.address, uid) is None:
                # the stop has overtaken the spawn, or ends the wait for a restart
                stopped = Failure(STOPPED, reason)
                self.node.remember(self.node.address, uid, stopped)
                self.node.refuse_unclaimed(uid, stopped)
            self.answer(origin, frame)

        if cell is None:
            ended()
        else:
            failure = Failure(STOPPED, reason, str(cell.record), restarts=again, incarnation=cell.incarnation)
            cell.stop(failure, ended)

    def on_incarnation(self, origin: Origin, frame: Frame, uid: int) -> None:
        """How often an actor here has been started again."""
        cell = self._cells.get(uid)
        if cell is not None:
            self.answer(origin, frame, cell.incarnation)
        else:
            gone = Failure(MISSING, "no such actor is on this process", proc=self.node.address.proc)
            self.node.refuse(origin, frame, self.node.fate(self.node.address, uid) or gone)

    def on_procs_ended(self, origin: Origin, frame: Frame, ended: list[tuple[ProcAddress, Failure]]) -> None:
        """The agent tells of procs that an actor here owns."""
        for address, failure in ended:
            self.node.forget_peers([address], failure)

    def on_look_after(self, origin: Origin, frame: Frame, uid: int) -> None:
        """Somebody has waited long for an actor here."""
        cell = self._cells.get(uid)
        if cell is not None:
            cell.miss_thread()

    def on_probe(self, origin: Origin, frame: Frame, probe: Probe) -> None:
        """Somebody waits for an actor here, and asks what keeps it."""
        self._detector.receive(probe)

    def on_let_go(self, origin: Origin, frame: Frame, wait: int) -> None:
        """An actor here waits for room in a mailbox, and is waited for by whose mailbox that is."""
        self.node.full.let_go(wait)

    def stop_all(self, reason: str, done: Callable[[], None], cause: str = STOPPED, restarts: bool = False) -> None:
        """Stop every actor here; `done` is called on the poller's thread when all have ended, within `cleanup_timeout`.

        Args:
            restarts: Whether this process may start again, and they with it.
        """
        cells = self.cells
        ended = countdown(len(cells), lambda: self.node.poller.call_soon(done))
        for cell in cells:
            failure = Failure(cause, reason, str(cell.record), host=self.node.address.host, restarts=restarts)
            cell.stop(failure, ended)

    def _requester_lost(self, address: ProcAddress) -> None:
        """A process is gone that talked to this one: what its actors owned here goes with it."""
        for cell in self.cells:
            if cell._spec.owner.proc == address:
                cell.end(Failure(STOPPED, f"its owner's process {address.proc} is gone", str(cell.record)))

    def _peer_lost(self, address: ProcAddress, failure: Failure) -> None:
        actors = [actor for actor in list(self.node.actors.values()) if isinstance(actor, BaseCell)]
        if address.proc == AGENT:  # with a host goes all that runs on it, also what nobody here has talked to
            owned = {proc for actor in actors for proc in actor.ownership.processes()}
            self.node.forget_peers([proc for proc in owned if proc.agent == address], failure)
        for actor in actors:
            actor.proc_failed(address, failure)


class _Refuser:
    """Stands for an actor of a proc whose bootstrap function failed: whoever calls it gets that error."""

    def __init__(self, error: bytes) -> None:
        self._error = error

    def receive(self, origin: Origin, frame: Frame) -> None:
        if frame.request:
            origin.send(Frame(REPLY, ERROR, frame.rank, frame.target, frame.sender, frame.request, b"", self._error))


def _cell_class(is_async: bool) -> type[SyncCell | AsyncCell]:
    if not is_async:
        return SyncCell
    from .async_cell import AsyncCell  # brings asyncio, which a program of sync actors never needs

    return AsyncCell


def spawn_content(spec: SpawnSpec, is_async: bool, init: tuple[bytes, Any], gated: bool = True) -> Any:
    """The arguments of ``spawn``; large constructor arguments stay out of band, though they were pickled before."""
    payload, buffers = init
    parts = [PickleBuffer(buffer) for buffer in buffers]
    return pickling.dumps_call((spec, is_async, PickleBuffer(payload), parts, gated), {})
