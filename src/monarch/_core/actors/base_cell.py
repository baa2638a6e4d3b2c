"""The base of the client's root actor and of every spawned actor: an identity, and owned meshes.

Supervision arrives here: events go to `Ownership`, which is pure, and its instructions are carried
out. A restart stops what still runs; then processes start, then the actors on them, in the order of
their creation.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from ..._lazy import lazy_logger, note
from ..._words import host_here
from ..calls.future import Future
from ..hub import life
from ..hub.contracts import Origin
from ..hub.message_hub import MessageHub
from ..hub.spawn_requests import CreatorInstance
from ..supervision.failure import STOPPED, UNSTARTED, Failure, MeshFailure
from ..supervision.ownership import (
    Abandon,
    AskSupervisor,
    Fail,
    Instruction,
    OwnedMesh,
    Ownership,
    Restart,
)
from ..supervision.restart import RestartGroup, RestartPlan, Strategy
from ..wire import pickling
from ..wire.address import ActorAddress, ProcAddress
from ..wire.frame import Frame
from .context import Context, Instance, current

logger = lazy_logger("monarch.supervision")

_PAUSE = 0.1  # seconds, for the system to have a thread to give by then


class Owned(OwnedMesh):
    """An owned mesh, with what its owner can do to it.

    Args:
        cell: The owner.
        *of_mesh: Arguments of `OwnedMesh`.

    Attributes:
        since: When it was spawned, in seconds since 1970.
    """

    processes: Sequence[ProcAddress]
    handle: weakref.ref[Any] | None = None
    """The mesh that the program holds."""
    stopping: Future[None] | None = None
    """Done when it has been stopped; None before its stop was asked for."""

    def __init__(self, cell: BaseCell, *of_mesh: Any) -> None:
        super().__init__(*of_mesh)
        self._cell = cell
        self.since = time.time()

    def stop(self, reason: str) -> Future[Any]:
        raise NotImplementedError

    # where a group starts ranks again

    def stop_ranks(self, ranks: Sequence[int], reason: str) -> Future[None]:
        """Stop some ranks, which will start again; done when they have ended."""
        raise NotImplementedError

    def start_ranks(self, ranks: Sequence[int]) -> Sequence[Future[Any]]:
        """Start the next incarnation of ranks that have ended.

        They are there when all the futures are done.
        """
        raise NotImplementedError

    def abandon(self, ranks: Sequence[int]) -> None:
        """Tell those who wait for ranks that have failed that these will not start again."""
        raise NotImplementedError


class BaseCell:
    """The identity and the owned meshes of an actor, spawned or the client's root.

    Args:
        hub: The hub of this process.
        uid: The actor's id.
        record: Its identity, for messages and programs.

    Attributes:
        since: When it was made, in seconds since 1970.
        ownership: The meshes that it has spawned.
        classes: Those that have come to it by value, by their ids; None in the client, where they
            are from.
    """

    classes: dict[str, type] | None = None

    def __init__(self, hub: MessageHub, uid: int, record: CreatorInstance) -> None:
        self.hub = hub
        self.uid = uid
        self.since = time.time()
        self.ownership: Ownership[Owned] = Ownership()
        self._owning = threading.Lock()
        self.ports: weakref.WeakSet[Any] = weakref.WeakSet()
        self.instance = Instance(self, record)
        self.record = record

    @property
    def address(self) -> ActorAddress:
        return ActorAddress(self.hub.address, self.uid)

    @property
    def incarnation(self) -> int:
        """How often this actor has been started again after a failure."""
        return 0

    @property
    def thread(self) -> int | None:
        """The thread that runs it; None for the client: its code runs on any thread."""
        return None

    @property
    def ending(self) -> Failure | None:
        """Why this actor is about to end, or has ended."""
        return None

    def receive(self, origin: Origin, frame: Frame) -> None:
        raise NotImplementedError

    def abandon(self) -> None:
        """Disown what the actor owns, in a forked child, which is another process."""
        for mesh in self.ownership.ended():
            handle = mesh.handle() if mesh.handle is not None else None
            if handle is not None:
                handle._owned = None

    def heard(self, origin: Origin, frame: Frame) -> None:
        """An actor that this one owns tells of its failure, or that it has stopped itself."""
        failure = pickling.loads(frame.payload)
        if isinstance(failure.mesh_uid, int):
            self.hub.actors.remember(origin.peer, failure.mesh_uid, failure)
        self.rank_failed(failure)

    # supervision: events go to `ownership`, its instructions are carried out here; on any thread

    def own(self, mesh: Owned) -> None:
        """A mesh was created by this actor.

        Raises:
            RuntimeError: The actor is ending.
        """
        with self._owning:
            self.ownership.created(mesh)

    def disown(self, uid: int | str) -> None:
        """A mesh is being stopped on purpose."""
        with self._owning:
            self.ownership.stopped(uid)

    def rank_failed(self, failure: Failure) -> None:
        """Something that this actor owns has failed."""
        with self._owning:
            instructions = self.ownership.rank_failed(failure, time.monotonic())
        self._carry_out(instructions)

    def proc_failed(self, address: ProcAddress, failure: Failure) -> None:
        """A process is gone, on which this actor may own something."""
        # stops are meant, and `initialized` tells what did not start
        if failure.is_stop or failure.cause == UNSTARTED:
            return
        with self._owning:
            for mesh in self.ownership.meshes():  # its actors can't say it themselves
                rank = mesh.rank_on(address)
                if rank is not None and not mesh.are_processes and not mesh.has_failed(rank):
                    assert isinstance(mesh.uid, int)
                    life.remember_end(address, mesh.failure_of(rank, failure), mesh.uid)
            instructions = self.ownership.process_ended(address, failure, time.monotonic())
        self._carry_out(instructions)

    def note_spawned(self, procs: Sequence[ProcAddress]) -> None:
        """Note a new mesh: its owner hears of ranks on processes that were gone before.

        As of those that go later.
        """
        for address in procs:
            failure = self.hub.process_fate(address)
            if failure is not None:
                self.proc_failed(address, failure)

    def restart_group(self, strategy: Strategy) -> RestartGroup:
        """The group of a strategy in what this actor owns."""
        with self._owning:
            return self.ownership.group(strategy)

    def startable(self, mesh: Owned, ranks: Sequence[int]) -> list[int]:
        """The startable ones of the ranks that a restarter is about to start."""
        with self._owning:
            return self.ownership.startable(mesh.uid, ranks)

    def restarted(self, group: RestartGroup, plan: RestartPlan, error: str = "") -> None:
        """A restarter has carried out its plan, or could not."""
        with self._owning:
            instructions = self.ownership.restarted(group, plan, time.monotonic(), error)
        self._carry_out(instructions)

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, AskSupervisor):
                note("failures", "%s is told: %s", self.record, instruction.failure.explain)
                self.judge(instruction.failure, instruction.mesh)
            elif isinstance(instruction, Restart):
                note("failures", "%s starts again: %s", self.record, instruction.plan)
                Restarter(self, instruction.group).begin(instruction.plan)
            elif isinstance(instruction, Abandon):
                for uid, ranks in instruction.ranks.items():
                    mesh = self.ownership.get(uid)
                    if mesh is not None:  # not stopped meanwhile
                        mesh.abandon(ranks)
            elif isinstance(instruction, Fail):
                why = instruction.failure.explain
                note("failures", "%s fails, as it did not handle: %s", self.record, why)
                self.fail_unhandled(instruction.failure)

    def judge(self, failure: Failure, mesh: OwnedMesh) -> None:
        """Have ``__supervise__`` called."""
        raise NotImplementedError

    @staticmethod
    def public(failure: Failure, mesh: OwnedMesh) -> MeshFailure:
        """A failure as programs see it."""
        handle = mesh.handle if isinstance(mesh, Owned) else None
        return MeshFailure(failure, handle() if handle is not None else None)

    def fail_unhandled(self, failure: Failure, error: BaseException | None = None) -> None:
        """End, because a failure was not handled, or because handling it raised `error`."""
        raise NotImplementedError

    def note_unsettled(self, uid: int, procs: Sequence[ProcAddress]) -> None:
        """Note that these actors were sent a message without waiting for its answer."""

    def note_stopped(self, uid: int) -> None:
        """A mesh that this actor owns is being stopped."""

    def end(self, failure: Failure) -> None:
        """Let the actor end, with a failure or because it was stopped; on any thread."""
        raise NotImplementedError

    def stop_itself(self, reason: str) -> None:
        """Let the actor end at its own request; on any thread."""
        self.end(self.own_failure(STOPPED, reason))

    def own_failure(
        self, cause: str, reason: str, source: Failure | None = None, error: bytes = b""
    ) -> Failure:
        """A failure of this actor, with everything known about where it is."""
        record = self.record
        proc = f"{record.proc_mesh.name}{record.rank!r}" if record.proc_mesh is not None else ""
        return Failure(
            cause, reason, str(record), record.name, self.uid, record.rank.rank, proc, os.getpid(), host_here(),
            source=source, error=error,
        )  # fmt: skip


class Restarter:
    """Carries out the plans of one group.

    A plan runs on a thread of its own, as restarts are rare and wait for processes.

    What ends its waits: ranks end within `cleanup_timeout` and `process_exit_timeout`, and start,
    or fail to, within `host_spawn_ready_timeout`; the bootstrap function, like any code of the
    program, takes the time it takes. When the owner ends, its meshes are stopped, and with them
    every operation that this waits for.
    """

    def __init__(self, cell: BaseCell, group: RestartGroup) -> None:
        self._cell = cell
        self._group = group

    def begin(self, plan: RestartPlan) -> None:
        try:
            self._cell.hub.thread(target=self._run, args=(plan,), name="monarch-restart").start()
        except RuntimeError as error:  # the system has no thread to give
            reason = str(error)
            # not at once: the plan fails once more, and would burn all of its attempts in the same
            # shortage
            self._cell.hub.poller.call_later(
                _PAUSE, lambda: self._cell.restarted(self._group, plan, reason)
            )

    def _run(self, plan: RestartPlan) -> None:
        current.set(Context(self._cell))
        logger.warning("%s", self._announce(plan))
        error = ""
        try:
            self._carry_out(plan)
        except Exception as problem:  # a process that could not be started, say: one more failure
            error = f"{type(problem).__name__}: {problem}"
        self._cell.restarted(self._group, plan, error)

    def _carry_out(self, plan: RestartPlan) -> None:
        meshes = [
            (mesh, ranks)
            for uid, ranks in plan.ranks.items()
            if (mesh := self._cell.ownership.get(uid))
        ]
        processes = {
            mesh.processes[rank] for mesh, ranks in meshes if mesh.are_processes for rank in ranks
        }
        self._stop(meshes, processes)
        for mesh, ranks in meshes:
            startable = self._cell.startable(mesh, ranks)
            # in the order of creation: processes are there before the actors that start in them
            for started in mesh.start_ranks(startable) if startable else ():
                started.get()

    def _stop(self, meshes: list[tuple[Owned, list[int]]], processes: set[ProcAddress]) -> None:
        """End what of the old incarnations still runs; the actors of a process end with it."""
        stopping = []
        for mesh, ranks in meshes:
            own = [
                rank
                for rank in ranks
                if mesh.are_processes or mesh.processes[rank] not in processes
            ]
            own = self._cell.startable(mesh, own)
            if own:
                stopping.append(
                    mesh.stop_ranks(own, "it starts again, as something it belongs to has failed")
                )
        for stopped in stopping:
            stopped.get()

    def _announce(self, plan: RestartPlan) -> str:
        strategy = self._group.strategy
        names = [
            f"{mesh.name}{ranks}"
            for uid, ranks in plan.ranks.items()
            if (mesh := self._cell.ownership.get(uid))
        ]
        why = (
            "; ".join(dict.fromkeys(failure.explain() for failure in plan.failures))
            or "spawned during a restart"
        )
        limit = f"{plan.attempt} of {strategy.max_restarts} within {strategy.within:g}s"
        return f"restarting {', '.join(names)} ({limit}): {why}"
