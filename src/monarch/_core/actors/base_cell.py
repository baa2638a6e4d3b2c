"""The base of the client's root actor and of every spawned actor: an identity, and owned meshes.

Supervision arrives here: events go to `Ownership`, which is pure, and its instructions are carried
out.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from ..._lazy import note
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
from .contracts import Owned
from .instance import Instance
from .restarter import Restarter


class BaseCell:
    """The identity and the owned meshes of an actor, spawned or the client's root.

    Args:
        hub: The hub of this process.
        uid: The actor's id.
        record: Who it is.

    Attributes:
        since: When it was made, in seconds since 1970.
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
        """The thread that runs it; None for the client, whose code runs on any."""
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
                note(
                    "failures",
                    "%s fails, as it did not handle: %s",
                    self.record,
                    instruction.failure.explain,
                )
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
        """These actors were sent something that nobody waits for."""

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
            cause, reason, str(record), record.name, self.uid, record.rank.rank, proc, os.getpid(), socket.gethostname(),
            source=source, error=error,
        )  # fmt: skip
