"""The meshes that an actor owns: how they are stopped, and how their ranks start again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import config
from ..actors.base_cell import BaseCell, Owned
from ..actors.proc_service import spawn_record
from ..actors.request import SpawnCall, StopCall
from ..calls.future import Future
from ..calls.pending import subscribe
from ..client.client import client
from ..hub.control import send_record
from ..hub.control_records import AbandonProcs, StopActor, StopMesh
from ..hub.spawn_requests import SpawnSpec
from ..shape import Extent, Point
from ..supervision.failure import STOPPED, Failure
from ..supervision.restart import RestartGroup
from ..wire.address import ProcAddress
from ..wire.frame import URGENT


class OwnedActors(Owned):
    """An actor mesh, owned by the actor behind `cell`.

    Args:
        path: Gives a rank's path, for reports.
        is_async: As of `spawn_record`, and so is `init`, which is kept where ranks may start again.

    Attributes:
        spec: The spawned actor mesh.
        init: As given.
        successors: Name of the class, and `init`, that some ranks start again with, by rank.
    """

    uid: int

    def __init__(
        self,
        cell: BaseCell,
        spec: SpawnSpec,
        procs: Sequence[ProcAddress],
        path: Callable[[int], str],
        group: RestartGroup | None,
        is_async: bool,
        init: tuple[bytes, Any],
    ) -> None:
        super().__init__(cell, spec.uid, spec.name, procs, False, path, group)
        self.spec = spec
        self._is_async = is_async
        self.init = init if group is not None else None
        self.successors: dict[int, tuple[str, tuple[bytes, Any]]] = {}

    def class_name(self, rank: int) -> str:
        """The name of the class that a rank starts with."""
        name, _ = self.successors.get(rank, (self.spec.class_name, None))
        return name

    def stop(self, reason: str) -> Future[None]:
        """Ask every rank to end; done when all have, or are known to be gone."""
        if self.stopping is None:
            request = StopCall(f"{self.name}.stop()", self.processes)
            self.stopping = request.future
            self._cell.disown(self.uid)
            self._cell.note_stopped(self.uid)
            self._stop(request, self.processes, reason)
            for address in self.processes:
                self._cell.hub.actors.remember(
                    address, self.uid, Failure(STOPPED, reason, mesh=self.name)
                )
        return self.stopping

    def stop_ranks(self, ranks: Sequence[int], reason: str) -> Future[None]:
        return self._stop_ranks(ranks, reason, again=True)

    def abandon(self, ranks: Sequence[int]) -> None:
        self._stop_ranks(ranks, "it failed too often and will not start again", again=False)

    def _stop_ranks(self, ranks: Sequence[int], reason: str, again: bool) -> Future[None]:
        procs = [self.processes[rank] for rank in ranks]
        request = StopCall(f"{self.name}: {len(ranks)} ranks to end", procs)
        self._stop(request, procs, reason, again)
        return request.future

    def _stop(
        self, request: StopCall, procs: Sequence[ProcAddress], reason: str, again: bool = False
    ) -> None:
        record = StopActor(self.uid, reason, again)
        send_record(self._cell.hub, procs, record, request, self._cell.uid, URGENT)
        # a process in which nothing runs, as one of its threads holds the interpreter lock, can't
        # say that it has stopped
        bound = config.value("cleanup_timeout") + config.value("stop_actor_timeout")
        timer = self._cell.hub.poller.call_later(bound, lambda: request.resolve(None))
        subscribe(request.future, timer.cancel)

    def start_ranks(self, ranks: Sequence[int]) -> Sequence[Future[Any]]:
        assert self.init is not None, "only meshes of a group start again"
        procs = [self.processes[rank] for rank in ranks]
        request = SpawnCall(f"{self.name}: {len(ranks)} ranks to start again", procs, self.uid)
        for index, rank in enumerate(ranks):
            again = self.spec._replace(
                class_name=self.class_name(rank), incarnation=self.incarnation(rank), rank=rank
            )
            _, init = self.successors.get(rank, ("", self.init))
            record = spawn_record(again, self._is_async, init)
            # urgent: it is for this incarnation of the process. If that ends first, the next plan
            # starts another actor there, and this one must not wait for it
            send_record(
                self._cell.hub, procs[index], record, request, self._cell.uid, URGENT, [index]
            )
        return [request.future]


class OwnedProcs(Owned):
    """A proc mesh, owned by the actor behind `cell`.

    Args:
        start_again: Starts the next incarnation of some ranks, by rank.

    Attributes:
        extent: Of the mesh.
    """

    uid: str

    def __init__(
        self,
        cell: BaseCell,
        uid: str,
        name: str,
        procs: Sequence[ProcAddress],
        extent: Extent,
        group: RestartGroup | None,
        start_again: Callable[[dict[int, int]], list[Future[bool]]],
    ) -> None:
        super().__init__(
            cell, uid, name, procs, True, lambda rank: f"{name}{Point(rank, extent)!r}", group
        )
        self.extent = extent
        self._start_again = start_again

    def stop(self, reason: str) -> Future[None]:
        """Ask the agents to end every proc; done when the processes are gone."""
        if self.stopping is None:
            agents = list(dict.fromkeys(address.agent for address in self.processes))
            request = StopCall(f"{self.name}.stop()", agents)
            self.stopping = request.future
            self._cell.disown(self.uid)
            hub = self._cell.hub
            if hub.address == hub.root:
                client().pending_output.ends(agents)
            send_record(hub, agents, StopMesh(self.uid, None, reason), request, self._cell.uid)
            subscribe(request.future, lambda: self._stopped(reason))
        return self.stopping

    def _stopped(self, reason: str) -> None:
        self._cell.hub.forget_peers(self.processes, Failure(STOPPED, reason, mesh=self.name))

    def stop_ranks(self, ranks: Sequence[int], reason: str) -> Future[None]:
        return self._ask_agents(ranks, lambda here: StopMesh(self.uid, here, reason))

    def start_ranks(self, ranks: Sequence[int]) -> Sequence[Future[Any]]:
        # connections to the former incarnations must not swallow messages for these
        ended = Failure(STOPPED, "it starts again", mesh=self.name, restarts=True)
        for rank in ranks:
            before = self.incarnation(rank) - 1
            self._cell.hub.forget_peers([self.processes[rank]], ended._replace(incarnation=before))
        assert self.group is not None, "only meshes of a group start again"
        self.group.replaced((self.uid, rank) for rank in ranks)
        return self._start_again({rank: self.incarnation(rank) for rank in ranks})

    def abandon(self, ranks: Sequence[int]) -> None:
        self._ask_agents(ranks, lambda here: AbandonProcs(self.uid, here))

    def _ask_agents(
        self, ranks: Sequence[int], record: Callable[[list[int]], tuple[Any, ...]]
    ) -> Future[None]:
        agents = list(dict.fromkeys(self.processes[rank].agent for rank in ranks))
        request = StopCall(f"{self.name}: {len(ranks)} ranks to end", agents)
        for index, agent in enumerate(agents):
            here = [rank for rank in ranks if self.processes[rank].agent == agent]
            send_record(self._cell.hub, agent, record(here), request, self._cell.uid, ranks=[index])
        return request.future
