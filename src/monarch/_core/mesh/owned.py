"""What an actor owns: how a mesh of actors, or of processes, is stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..runtime.cell import BaseCell, Owned
from ..runtime.future import Future
from ..runtime.request import StopCall
from ..shape import Extent, Point
from ..supervision.failure import STOPPED, Failure
from ..supervision.restart import RestartGroup
from ..wire import pickling
from ..wire.address import SYSTEM, ProcAddress
from ..wire.frame import URGENT


class OwnedActors(Owned):
    """An actor mesh, owned by the actor behind `cell`.

    Args:
        path: Gives a rank's path, for reports.
    """

    def __init__(
        self,
        cell: BaseCell,
        uid: int,
        name: str,
        procs: Sequence[ProcAddress],
        path: Callable[[int], str],
        group: RestartGroup | None = None,
    ) -> None:
        super().__init__(uid, name, procs, False, path, group)
        self._cell = cell
        self._actor = uid
        self._procs = procs
        self.stopping: Future[None] | None = None

    def stop(self, reason: str) -> Future[None]:
        """Ask every rank to end; done when all have, or are known to be gone."""
        if self.stopping is None:
            request = StopCall(f"{self.name}.stop()", self._procs)
            self.stopping = request.future
            content = pickling.dumps(((self._actor, reason), {}))
            self._cell.disown(self.uid)
            self._cell.note_stopped(self._actor)
            self._cell.node.cast(self._procs, SYSTEM, b"stop_actor", content, request, self._cell.uid, URGENT)
            for address in self._procs:
                self._cell.node.remember(address, self._actor, Failure(STOPPED, reason, mesh=self.name))
        return self.stopping


class OwnedProcs(Owned):
    """A proc mesh, owned by the actor behind `cell`."""

    def __init__(
        self,
        cell: BaseCell,
        uid: str,
        name: str,
        procs: Sequence[ProcAddress],
        extent: Extent,
        group: RestartGroup | None = None,
    ) -> None:
        super().__init__(uid, name, procs, True, lambda rank: f"{name}{Point(rank, extent)!r}", group)
        self._cell = cell
        self._procs = procs
        self.stopping: Future[None] | None = None

    def stop(self, reason: str) -> Future[None]:
        """Ask the agents to end every proc; done when the processes are gone."""
        if self.stopping is None:
            agents = list(dict.fromkeys(address.agent for address in self._procs))
            request = StopCall(f"{self.name}.stop()", agents)
            self.stopping = request.future
            self._cell.disown(self.uid)
            content = pickling.dumps(((self.uid, None, reason), {}))
            self._cell.node.cast(agents, SYSTEM, b"stop_mesh", content, request, self._cell.uid)
            request.future._subscribe(lambda: self._stopped(reason))
        return self.stopping

    def _stopped(self, reason: str) -> None:
        self._cell.node.forget_peers(self._procs, Failure(STOPPED, reason, mesh=self.name))
