"""Entries in an actor's ledger: what it owns, how that is stopped, what a lost process means to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..runtime.cell import BaseCell
from ..runtime.future import Future
from ..runtime.request import StopCall
from ..shape import Extent, Point
from ..supervision.failure import STOPPED, Failure
from ..wire import pickling
from ..wire.address import SYSTEM, ProcAddress
from ..wire.frame import URGENT


class OwnedActors:
    """An actor mesh, owned by the actor behind `cell`.

    Args:
        path: Gives a rank's path, for reports.
    """

    covers_procs = False

    def __init__(
        self, cell: BaseCell, uid: int, name: str, procs: Sequence[ProcAddress], path: Callable[[int], str]
    ) -> None:
        self._cell = cell
        self.uid = uid
        self._name = name
        self.procs = procs
        self._path = path
        self.stopping: Future[None] | None = None

    def stop(self, reason: str) -> Future[None]:
        """Ask every rank to end; done when all have, or are known to be gone."""
        if self.stopping is None:
            request = StopCall(f"{self._name}.stop()", self.procs)
            self.stopping = request.future
            content = pickling.dumps(((self.uid, reason), {}))
            self._cell.ledger.strike(self.uid)
            self._cell.note_stopped(self.uid)
            self._cell.node.cast(self.procs, SYSTEM, b"stop_actor", content, request, self._cell.uid, URGENT)
            for address in self.procs:
                self._cell.node.remember(address, self.uid, Failure(STOPPED, reason, mesh=self._name))
        return self.stopping

    def failure_on(self, address: ProcAddress, failure: Failure) -> Failure | None:
        for rank, proc in enumerate(self.procs):
            if proc == address:
                return failure.of(self._path(rank), self._name, self.uid, rank)
        return None


class OwnedProcs:
    """A proc mesh, owned by the actor behind `cell`."""

    covers_procs = True

    def __init__(self, cell: BaseCell, uid: str, name: str, procs: Sequence[ProcAddress], extent: Extent) -> None:
        self._cell = cell
        self.uid = uid
        self._name = name
        self.procs = procs
        self._extent = extent
        self.stopping: Future[None] | None = None

    def stop(self, reason: str) -> Future[None]:
        """Ask the agents to end every proc; done when the processes are gone."""
        if self.stopping is None:
            agents = list(dict.fromkeys(address.agent for address in self.procs))
            request = StopCall(f"{self._name}.stop()", agents)
            self.stopping = request.future
            self._cell.ledger.strike(self.uid)
            content = pickling.dumps(((self.uid, None, reason), {}))
            self._cell.node.cast(agents, SYSTEM, b"stop_mesh", content, request, self._cell.uid)
            request.future._subscribe(lambda: self._stopped(reason))
        return self.stopping

    def _stopped(self, reason: str) -> None:
        self._cell.node.forget_peers(self.procs, Failure(STOPPED, reason, mesh=self._name))

    def failure_on(self, address: ProcAddress, failure: Failure) -> Failure | None:
        for rank, proc in enumerate(self.procs):
            if proc == address:
                return failure._replace(
                    mesh=self._name, mesh_uid=self.uid, rank=rank, proc=f"{self._name}{Point(rank, self._extent)!r}"
                )
        return None
