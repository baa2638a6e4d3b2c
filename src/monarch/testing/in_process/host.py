"""A host of procs that are objects: the agent that starts them, and the procs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ..._core.actors.cell import ActorCell
from ..._core.hub import life
from ..._core.hub.control import send_record
from ..._core.hub.control_records import MeshNamed, ProcReady, StopProc
from ..._core.hub.control_service import ControlRequest, handles
from ..._core.hub.spawn_requests import SpawnRequest, SpawnSpec, Start
from ..._core.processes.agent import Agent
from ..._core.processes.heartbeat import Pauses
from ..._core.processes.host_procs import HostProcs
from ..._core.processes.proc_entry import ProcEntry
from ..._core.processes.specs import UNNAMED
from ..._core.supervision.failure import Failure
from ..._core.wire.address import SYSTEM, ProcAddress
from .cells import LocalService
from .hub import LocalHub, Network


class LocalPauses(Pauses):
    """Believes what it is told: there is nothing to look at."""

    def _check(self, pid: int, timeout: float) -> None:
        self._frozen(pid, timeout)


class LocalProc(LocalService):
    """A proc: as that of a process, but for what the process has of the system.

    Args:
        hub: Its hub.
        mesh: Id of its mesh.
        name: Name of its mesh; that of the first actor, if it has none.
    """

    def __init__(self, hub: LocalHub, mesh: str, name: str) -> None:
        super().__init__(hub)
        self._mesh, self._name = mesh, name
        hub.peer_lost_hooks.append(self._end_with_agent)

    def _end_with_agent(self, address: ProcAddress, failure: Failure) -> None:
        if address == self.hub.address.agent:
            self.hub.poller.stop()

    def spawn(self, spec: SpawnSpec, *args: Any, **kwargs: Any) -> ActorCell:
        if UNNAMED == self._name != spec.name:
            self._name = spec.name
            send_record(self.hub, self.hub.address.agent, MeshNamed(self._mesh, spec.name))
        return super().spawn(spec, *args, **kwargs)

    @handles(StopProc)
    def _stop_proc(self, request: ControlRequest, record: StopProc) -> None:
        self.stop_all(record.why, self.hub.poller.stop)


class LocalProcs(HostProcs):
    """The procs of a host that is in this process."""

    _hub: LocalHub

    def __init__(self, hub: Any, *args: Any) -> None:
        super().__init__(hub, *args)
        self._pauses = LocalPauses(hub.poller, self._frozen)

    def start(self, request: SpawnRequest, answer: Callable[[Exception | None], None]) -> None:
        error = next((why for start in request.starts if (why := _impossible(start))), None)
        if error is not None:
            answer(ValueError(f"error spawning proc mesh {request.name}: {error}"))
            return
        super().start(
            request._replace(config={**request.config, "end_process_groups": False}), answer
        )

    def make(self, request: SpawnRequest) -> None:
        """Make the procs that the agent has asked for."""
        mesh = self.meshes.get(request.mesh)
        if mesh is None:
            return
        self._bound(request.mesh, [start.rank for start in request.starts])
        for start in request.starts:
            self._make(mesh.procs[start.rank], request)

    def _make(self, entry: ProcEntry, request: SpawnRequest) -> None:
        hub = LocalHub(self._hub.network, entry.address, request.root)
        number = hub.network.add(hub)
        self._running[number] = entry, -1
        hub.on_stop = partial(self._poller.call_soon, partial(self._ended, number, hub, 0))
        hub.on_death = partial(self._ended, number, hub)
        hub.on_still = lambda still: self._poller.call_soon(
            partial(self._pauses.changed, number, still)
        )
        LocalProc(hub, request.mesh, request.name)
        life.remember(entry.address, SYSTEM, life.CREATED)
        self._follow(entry, entry.forked(number, time.monotonic()))
        send_record(hub, entry.address.agent, ProcReady(number, -1))

    def _kill(self, entry: ProcEntry) -> None:
        hub = self._hub.network.hubs.get(entry.address)
        if hub is not None and entry.pid in self._running:
            self._ended(entry.pid, hub, signal.SIGKILL)

    def _ended(self, number: int, hub: LocalHub, status: int) -> None:
        entry, _ = self._running.pop(number, (None, 0))
        if entry is not None:
            hub.end_at_once()
            self._pauses.changed(number, False)
            # not here: jobs that were put earlier must run first
            self._poller.call_soon(
                lambda: self._follow(entry, entry.exited(status, hub.suspicion, time.monotonic()))
            )

    def _probe(self, name: str) -> None:
        """Let the agent tell callers that could not reach a proc."""


class LocalAgent(Agent):
    """The agent of a host that is in this process.

    Args:
        network: What the host is part of.
        host: Its name.
        root: The client that it belongs to.
    """

    procs_kind: Any = LocalProcs

    def __init__(self, network: Network, host: str, root: ProcAddress) -> None:
        super().__init__(
            LocalHub(network, ProcAddress(host, "agent"), root), lambda heard, lost: _Spawner(self)
        )


class _Spawner:
    """Stands for the process that forks procs."""

    def __init__(self, agent: LocalAgent) -> None:
        self._agent = agent

    def send(self, request: SpawnRequest) -> None:
        procs: Any = self._agent.procs
        self._agent.hub.poller.call_soon(lambda: procs.make(request))


def _impossible(start: Start) -> str | None:
    """Return what of a request takes a process of its own."""
    if start.command is not None:
        return (
            "a proc of monarch.testing.local() is an object in this process: it can't run another"
            " program (bootstrap_command)"
        )
    if start.env or not start.inherit_env or start.cpus or start.nodes:
        return (
            "a proc of monarch.testing.local() has the environment, and the CPUs, of this process"
            " (bootstrap_command, proc_bind)"
        )
    return None
