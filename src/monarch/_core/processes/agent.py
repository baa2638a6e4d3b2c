"""The host agent: one process per host that starts, watches and stops procs. It runs no user code.

What it waits for: requests from clients and procs, its spawner's reports of what becomes of procs, their output, the end
of each (a pidfd, for when the spawner cannot report it), what becomes of the spawner, what other hosts say (see
`host_gateway`), and the end of the client or worker that started it (a pidfd), after which it stops everything and ends.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ... import config
from ..calls.countdown import countdown
from ..hub.contracts import Origin
from ..hub.node import Node
from ..hub.system import System
from ..supervision.failure import MISSING, Failure, host_lost
from ..wire.address import AGENT, ProcAddress, random_name
from ..wire.frame import Frame
from .host_procs import HostProcs
from .output import Mark, Output
from .spawn_request import SpawnRequest

if TYPE_CHECKING:
    from ..net.connection import Connection
    from ..net.trust import Trust
    from .host_gateway import HostGateway

_STUCK_GRACE = 2.0  # seconds after which the agent ends although its spawner does not answer
_LET_GO = 10.0  # seconds after which the agent ends although the client that has shut it down does not say so
_ORPHAN_GRACE = 1.0  # seconds, at most, to clean up when nobody is left to ask for more


class Agent(System):
    """What clients, procs and other hosts may ask of a host. `procs` does what it takes.

    Args:
        node: Hub of this process.
        control: Socket to the spawner.
        spawner_pid: Its process, a child of this one.
    """

    def __init__(self, node: Node, control: socket.socket, spawner_pid: int) -> None:
        super().__init__(node)
        self.procs = HostProcs(node, control, spawner_pid, self._spawner_lost, self._publish)
        self._subscribers: dict[ProcAddress, tuple[Origin, Frame]] = {}
        self._published = itertools.count(1)
        node.inbound_lost_hooks.append(self._requester_lost)
        self.gateway: HostGateway | None = None
        node.gateway = self._first_abroad
        self.identity = random_name()  # by which a client sees that it knows this host by two names
        self.reason = "it failed"  # why it ends
        self._ends_with: str | None = None  # host of the client that has shut it down

    def on_ping(self, origin: Origin, frame: Frame) -> None:
        """A sign of life is wanted."""
        self.answer(origin, frame)

    # output

    def on_subscribe(self, origin: Origin, frame: Frame) -> None:
        """A client wants the output of its procs; it comes as replies, in order with all other replies."""
        self._subscribers[origin.peer] = (origin, frame)

    def on_mark_output(self, origin: Origin, frame: Frame, number: int) -> None:
        """A client wants to know when it has seen what its procs have printed by now."""
        if origin.peer not in self._subscribers:  # it sees nothing of what is printed here
            self.node.refuse(origin, frame, Failure(MISSING, "this host shows its output to others"))
            return
        mark = Mark(ProcAddress(self.node.called_by(origin), AGENT), number)
        self.answer(origin, frame)
        self.procs.output.passed_on(lambda: self._publish(origin.peer, mark))

    def _publish(self, client: ProcAddress, output: Output | Mark) -> None:
        subscriber = self._subscribers.get(client)
        if subscriber is not None:
            number = next(self._published)  # when a host in between is lost, what was said is said again
            self.answer(*subscriber, output, meta=number.to_bytes(8, "big"))

    # other hosts

    def on_join(
        self, origin: Origin, frame: Frame, hosts: Sequence[str], trust: Trust, knobs: dict[str, object]
    ) -> None:
        """The client will use these hosts, and this is how to prove itself to them."""
        config.inherit(knobs)
        links = self.open_gateway(trust).links
        links.adapt()
        links.use_trust(hosts, trust)

    def on_route_via(self, origin: Origin, frame: Frame, host: str, trust: Trust) -> None:
        """All other hosts are reached through this one."""
        gateway = self.open_gateway(trust)
        gateway.links.use_trust([host], trust)
        gateway.core.via = host

    def on_attach(self, origin: Origin, frame: Frame, knobs: dict[str, object]) -> None:
        """A client on another host will use this one, and wants the output of its procs, as with `subscribe`.

        Its knobs are in force here until another client attaches this host.
        """
        config.inherit(knobs)
        if self.gateway is not None:
            self.gateway.links.adapt()
        self._subscribers[origin.peer] = (origin, frame)
        self.answer(origin, frame, self.identity)

    def on_detach(self, origin: Origin, frame: Frame, hosts: Sequence[str]) -> None:
        """The client does not use these hosts any more."""
        if self.gateway is not None:
            self.gateway.core.withdraw(origin.peer, hosts)
        self.answer(origin, frame)

    def _first_abroad(self, connection: Connection | None, frame: Frame) -> None:
        """A process here uses another host, though its client has attached none: the shared secret opens it, or nothing does."""
        self.open_gateway()
        assert self.node.gateway is not None
        self.node.gateway(connection, frame)

    def open_gateway(self, trust: Trust | None = None) -> HostGateway:
        """The way to other hosts, from now on; `trust` is for those that have none of their own: by default the secret."""
        if self.gateway is None:
            from .host_gateway import HostGateway  # brings TLS, which a program on one machine never needs

            self.gateway = HostGateway(self.node, trust, self._host_gone)
        return self.gateway

    def _host_gone(self, host: str) -> None:
        """Another host is gone: what its clients have here goes, too."""
        if host == self._ends_with:
            self.node.poller.stop()
        for client in [client for client in self._subscribers if client.host == host]:
            del self._subscribers[client]
        meshes = self.procs.meshes.values()
        orphans = [mesh for mesh in meshes if host in (mesh.root.host, mesh.owner.proc.host)]
        self.procs.stop_meshes(orphans, "the host of its client is gone", _orphan_grace())

    # procs

    def on_spawn_procs(self, origin: Origin, frame: Frame, request: SpawnRequest) -> None:
        self._start(origin, frame, request)

    def on_restart_procs(self, origin: Origin, frame: Frame, request: SpawnRequest) -> None:
        """Procs of a mesh that have ended, or never came up, shall start again under their old names."""
        mesh = self.procs.meshes.get(request.mesh)
        if mesh is None or not mesh.restarts:
            self.answer_error(origin, frame, ValueError(f"{request.name} was stopped"))
        else:
            self._start(origin, frame, request)

    def _start(self, origin: Origin, frame: Frame, request: SpawnRequest) -> None:
        def answer(error: Exception | None) -> None:
            if error is None:
                self.answer(origin, frame, True)
            else:
                self.answer_error(origin, frame, error)

        self.procs.start(request.on_host(self.node.called_by(origin), frame.rank), answer)

    def on_ready(self, origin: Origin, frame: Frame) -> None:
        """A proc is up."""
        self.procs.ready(origin.peer.proc)

    def on_named(self, origin: Origin, frame: Frame, uid: str, name: str) -> None:
        """Actors have come to procs that had no name."""
        if uid in self.procs.meshes:  # not stopped meanwhile
            self.procs.meshes[uid].name = name

    def on_resolve(self, origin: Origin, frame: Frame, name: str, connected: float) -> None:
        """What became of a proc: None when it listens, else how it ended. Answered when that is known.

        Args:
            connected: When the connection was made that broke (`time.monotonic`); 0 if there was none yet.
        """
        self.procs.askers.ask(name, connected, lambda failure: self.answer(origin, frame, failure))

    def on_abandon_procs(self, origin: Origin, frame: Frame, uid: str, ranks: list[int]) -> None:
        """These procs will not start again; whoever waits for that is told."""
        self.procs.abandon(self.procs.of(uid, ranks))
        self.answer(origin, frame)

    def on_kill_procs(self, origin: Origin, frame: Frame, uid: str, ranks: list[int], reason: str) -> None:
        """Kill procs, which their owner takes as any failure; answer when they are gone and it has been told."""
        self.procs.kill(self.procs.of(uid, ranks), reason, lambda: self.answer(origin, frame))

    def on_stop_mesh(self, origin: Origin, frame: Frame, uid: str, ranks: list[int] | None, reason: str) -> None:
        """Stop procs, let them clean up, answer when they are gone."""
        grace = config.value("cleanup_timeout") + config.value("process_exit_timeout")
        if ranks is None:
            meshes = [self.procs.meshes[uid]] if uid in self.procs.meshes else []
            self.procs.stop_meshes(meshes, reason, grace, lambda: self.answer(origin, frame))
        else:
            self.procs.stop(self.procs.of(uid, ranks), reason, grace, lambda: self.answer(origin, frame))

    def on_stop_client(self, origin: Origin, frame: Frame, root: ProcAddress, reason: str, grace: float) -> None:
        """A client leaves: stop what it has here, let it clean up, answer when it is gone."""
        meshes = [mesh for mesh in self.procs.meshes.values() if mesh.root == root]
        self.procs.stop_meshes(meshes, reason, grace, lambda: self.answer(origin, frame))

    def _requester_lost(self, address: ProcAddress) -> None:
        self._subscribers.pop(address, None)
        orphans = [mesh for mesh in self.procs.meshes.values() if mesh.owner.proc == address]
        self.procs.stop_meshes(orphans, f"its owner's process {address.proc} is gone", _orphan_grace())

    # the end

    def on_shutdown(self, origin: Origin, frame: Frame, reason: str, grace: float) -> None:
        """Stop everything, answer, end; for a client on another host, end when it says so, or is gone.

        It shuts down other hosts at the same time, and this one passes on what they have to say.
        """

        def stopped() -> None:
            self.answer(origin, frame)
            if origin.peer.host in self.node.names:
                self.node.poller.stop()
            else:
                self._ends_with = origin.peer.host
                self.node.poller.call_later(_LET_GO, self.node.poller.stop)

        self._shut_down(reason, grace, origin.peer, stopped)

    def on_end(self, origin: Origin, frame: Frame) -> None:
        """The client that has shut this host down has heard so from all hosts."""
        if self._ends_with is not None:
            self.node.poller.stop()

    def parent_gone(self, pidfd: int, pid: int) -> None:
        self.node.poller.remove(pidfd)
        reason = f"process {pid}, which started this host's agent, is gone"
        self._shut_down(reason, _orphan_grace(), self.node.root, self.node.poller.stop)

    def _shut_down(self, reason: str, grace: float, client: ProcAddress, done: Callable[[], None]) -> None:
        """Stop everything; what belongs to `client` is stopped, whoever else owns something here loses it."""
        finish = countdown(1, done)
        self.reason = reason
        for mesh in self.procs.meshes.values():
            if mesh.root != client and mesh.owner.proc.host not in self.node.names:
                self.procs.take_from_owner(mesh, host_lost(self.node.address.host, reason, os.getpid()))
        self.procs.stop_all(reason, grace, finish)
        self.node.poller.call_later(grace + _STUCK_GRACE, finish)  # the spawner may be stuck in an import

    def _spawner_lost(self, why: str) -> None:
        """Every proc ends with the spawner, and this agent does, too: whoever depends on it sees this host as gone."""
        self.reason = why  # which the farewell tells clients of other hosts
        own_client = self._subscribers.get(self.node.root)
        if own_client is not None:  # before the connection closes, which would leave it guessing
            self.answer(*own_client, host_lost(str(self.node.address), why, os.getpid()))
        self.node.poller.stop()


def _orphan_grace() -> float:
    """Seconds that procs get to clean up when whoever they belong to is gone."""
    limit: float = config.value("mesh_orphan_timeout")
    return min(_ORPHAN_GRACE, limit)
