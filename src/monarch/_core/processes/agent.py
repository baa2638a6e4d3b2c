"""The host agent: one process per host that starts, watches and stops procs. It runs no user code.

What it waits for: requests from clients and procs, its spawner's reports of what becomes of procs,
their output, the end of each (a pidfd, for when the spawner cannot report it), what becomes of the
spawner, what other hosts say (see `host_gateway`), and the end of the client or worker that started
it (a pidfd), after which it stops everything and ends.
"""

from __future__ import annotations

import itertools
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ... import config
from ..._lazy import note
from ..._words import HOST_NAMES, host_here
from ..calls.pending import countdown
from ..hub import control_records as records
from ..hub.contracts import Origin
from ..hub.control_service import ControlRequest, ControlService, handles
from ..hub.message_hub import MessageHub
from ..hub.prints import NO_AUTHOR
from ..hub.spawn_requests import SpawnRequest
from ..supervision.failure import MISSING, WORKER_ENDED, Failure, host_lost
from ..wire.address import AGENT, ProcAddress, random_name
from ..wire.frame import Frame
from .black_boxes import DeadProc
from .host_procs import HostProcs
from .output import Mark, Output, OutputSink, Source
from .proc_entry import Wanted
from .spawner_link import MakeSpawner

if TYPE_CHECKING:
    from ..net.connection import Connection
    from ..net.trust import Trust
    from .host_gateway import HostGateway

_STUCK_GRACE = 2.0  # seconds after which the agent ends although its spawner does not answer
# seconds that a disk gets for the last lines before the answer; it gets more behind it
_FLUSH_BOUND = 2.0
# seconds after which the agent ends although the client that has shut it down does not say so
_LET_GO = 10.0
_LOOKS = 8  # within the time that it may be unused for
_ORPHAN_GRACE = 1.0  # seconds, at most, to clean up when the client that could ask for more is gone


class Agent(ControlService):
    """The host agent's answers to clients, procs and other hosts. `procs` does the work.

    Args:
        hub: Hub of this process.
        spawner: Makes the way to the spawner.

    Attributes:
        adapt_spawn: Changes spawn requests, where a plane has set it: new procs import from
            somewhere else, say.
    """

    procs_kind = HostProcs

    def __init__(self, hub: MessageHub, spawner: MakeSpawner) -> None:
        super().__init__(hub)
        self.procs = self.procs_kind(hub, spawner, self._spawner_lost, self._publish)
        self.adapt_spawn: Callable[[SpawnRequest], SpawnRequest] | None = None
        self._subscribers: dict[ProcAddress, ControlRequest] = {}
        self._attach_count = 0  # how often clients of other hosts have been
        self._published = itertools.count(1)
        hub.inbound_lost_hooks.append(self._requester_lost)
        self.gateway: HostGateway | None = None
        hub.gateway = self._first_abroad
        self._attached: dict[str, None] = {}  # other hosts, by the client of this one
        self.identity = random_name()  # by which a client sees that it knows this host by two names
        self.reason = "it failed"  # why it ends
        self._ends_with: str | None = None  # host of the client that has shut it down

    def _called_by(self, origin: Origin) -> str:
        """Return the caller's name for this host."""
        host: str = (origin.called or origin.peer).host
        return host if host in self.hub.names else self.hub.address.host

    @handles(records.Ping)
    def _ping(self, request: ControlRequest, record: records.Ping) -> None:
        request.answer()

    @handles(records.DescribeHost)
    def _describe_host(self, request: ControlRequest, record: records.DescribeHost) -> None:
        request.answer(self.describe_host(record.ended))

    def describe_host(self, ended: bool = False) -> records.HostDescription:
        own, root = self.hub.address, self.hub.root
        pid, hostname = os.getpid(), os.environ.get("MONARCH_MACHINE") or socket.gethostname()
        return records.HostDescription(
            own, pid, root, pid if root == own else os.getppid(), host_here(), list(self._attached),
            self.procs.describe(ended), hostname=hostname,
            names={host: HOST_NAMES[host] for host in self._attached if host in HOST_NAMES},
        )  # fmt: skip

    # output

    @handles(records.Subscribe)
    def _subscribe(self, request: ControlRequest, record: records.Subscribe) -> None:
        self._subscribers[request.peer] = request  # the output is in order with all other answers

    @handles(records.MarkOutput)
    def _mark_output(self, request: ControlRequest, record: records.MarkOutput) -> None:
        if request.peer not in self._subscribers:  # no output of this host is shown there
            request.refuse(Failure(MISSING, "this host shows its output to others"))
            return
        mark = Mark(ProcAddress(self._called_by(request.origin), AGENT), record.number)
        output = self.procs.output

        def publish() -> None:
            if self._publish(request.peer, mark):
                # not before: a client that hears of the end of this host expects no mark
                request.answer()
            else:
                request.refuse(Failure(MISSING, "this host does not show its output any more"))

        def write() -> None:
            output.flush(lambda: self.hub.poller.call_soon(publish))

        # the mark follows all that was read, as `_publish` sends in order
        output.passed_on(write if record.flush else publish, record.names)

    @handles(records.ShowOutput)
    def _show_output(self, request: ControlRequest, record: records.ShowOutput) -> None:
        def change() -> None:
            mesh = self.procs.meshes.get(record.mesh)
            if mesh is not None:
                mesh.wanted.update(
                    (rank, Wanted(view, record.level))
                    for ranks, view in record.views
                    for rank in ranks
                )
            request.answer()

        # lines printed before are shown under the former options
        self.procs.output.passed_on(change)

    @handles(records.OutputShown)
    def _output_shown(self, request: ControlRequest, record: records.OutputShown) -> None:
        self.procs.output.shown(record.name, record.size)

    def _publish(self, client: ProcAddress, output: list[Output] | Mark) -> bool:
        subscriber = self._subscribers.get(client)
        if subscriber is None:
            return False
        # numbered: outputs are repeated when a host in between is lost
        number = next(self._published)
        subscriber.answer(output, meta=number.to_bytes(8, "big"))
        return True

    def keep_output(self, client: ProcAddress, sink: OutputSink | None) -> None:
        """Have what procs of a client print from now on go somewhere else, too; None: no longer."""
        self.procs.output.keep(client, sink)

    def boxes(self) -> list[DeadProc]:
        """Return the black boxes of the procs of this host that failed within the last hour."""
        return self.procs.boxes.all()

    def tell_client(self, client: ProcAddress, text: str) -> None:
        """Have a client show a line that is of no proc; on any thread."""
        here = Source("", 0, "", host_here(), 0, 1, alone=True)
        line = Output(here, "stderr", time.time(), [(NO_AUTHOR, text)])

        def tell() -> None:
            self._publish(client, [line])

        self.hub.poller.call_soon(tell)

    # other hosts

    @handles(records.JoinHosts)
    def _join_hosts(self, request: ControlRequest, record: records.JoinHosts) -> None:
        config.inherit(record.knobs)
        gateway = self.open_gateway(record.trust)
        gateway.adapt()
        gateway.links.use_trust(record.hosts, record.trust)
        self._attached.update(dict.fromkeys(record.hosts))
        HOST_NAMES.update(record.names)

    @handles(records.RouteVia)
    def _route_via(self, request: ControlRequest, record: records.RouteVia) -> None:
        gateway = self.open_gateway(record.trust)
        gateway.links.use_trust([record.host], record.trust)
        gateway.core.via = record.host

    @handles(records.Attach)
    def _attach(self, request: ControlRequest, record: records.Attach) -> None:
        if record.knobs is not None:
            config.inherit(record.knobs)
            if self.gateway is not None:
                self.gateway.adapt()
        self._subscribers[request.peer] = request
        self._attach_count += 1
        note("host", "attached by %s", request.peer)
        request.answer(self.identity)

    @handles(records.Detach)
    def _detach(self, request: ControlRequest, record: records.Detach) -> None:
        if self.gateway is not None:
            self.gateway.core.withdraw(request.peer, record.hosts)
        note("host", "%s lets go of %s", request.peer, record.hosts)
        for host in record.hosts:
            self._attached.pop(host, None)
        request.answer()

    def _first_abroad(self, connection: Connection | None, frame: Frame) -> None:
        """A process here uses another host, though its client has attached none: the shared secret
        opens it, or nothing does.
        """
        self.open_gateway()
        assert self.hub.gateway is not None
        self.hub.gateway(connection, frame)

    def open_gateway(self, trust: Trust | None = None) -> HostGateway:
        """Open the way to other hosts; `trust` is for those without one, by default the secret."""
        if self.gateway is None:
            # brings TLS, which a program on one machine never needs
            from .host_gateway import HostGateway

            self.gateway = HostGateway(self.hub, trust, self._host_gone)
        return self.gateway

    def _host_gone(self, host: str) -> None:
        """Another host is gone: what its clients have here goes, too."""
        note("host", "%s is gone, and what its clients have here goes with it", host)
        if host == self._ends_with:
            self.hub.poller.stop()
        for client in [client for client in self._subscribers if client.host == host]:
            del self._subscribers[client]
        meshes = self.procs.meshes.values()
        orphans = [mesh for mesh in meshes if host in (mesh.root.host, mesh.owner.proc.host)]
        self.procs.stop_meshes(orphans, "the host of its client is gone", _orphan_grace())

    # procs

    @handles(records.SpawnProcs)
    def _spawn_procs(self, request: ControlRequest, record: records.SpawnProcs) -> None:
        self._start(request, record.request)

    @handles(records.RestartProcs)
    def _restart_procs(self, request: ControlRequest, record: records.RestartProcs) -> None:
        mesh = self.procs.meshes.get(record.request.mesh)
        if mesh is None or not mesh.restarts:
            request.fail(ValueError(f"{record.request.name} was stopped"))
        else:
            self._start(request, record.request)

    def _start(self, request: ControlRequest, wanted: SpawnRequest) -> None:
        def answer(error: Exception | None) -> None:
            if error is None:
                request.answer(True)
            else:
                request.fail(error)

        if self.adapt_spawn is not None:
            wanted = self.adapt_spawn(wanted)
        self.procs.start(wanted.on_host(self._called_by(request.origin), request.rank), answer)

    @handles(records.ProcReady)
    def _proc_ready(self, request: ControlRequest, record: records.ProcReady) -> None:
        self.procs.ready(request, record)

    @handles(records.MeshNamed)
    def _mesh_named(self, request: ControlRequest, record: records.MeshNamed) -> None:
        if record.mesh in self.procs.meshes:  # not stopped meanwhile
            self.procs.meshes[record.mesh].name = record.name

    @handles(records.ResolveProc)
    def _resolve_proc(self, request: ControlRequest, record: records.ResolveProc) -> None:
        self.procs.resolver.resolve(record.name, record.connected, request.answer)

    @handles(records.AbandonProcs)
    def _abandon_procs(self, request: ControlRequest, record: records.AbandonProcs) -> None:
        self.procs.abandon(self.procs.of(record.mesh, record.ranks))
        request.answer()

    @handles(records.KillProcs)
    def _kill_procs(self, request: ControlRequest, record: records.KillProcs) -> None:
        self.procs.kill(self.procs.of(record.mesh, record.ranks), record.reason, request.answer)

    @handles(records.StopMesh)
    def _stop_mesh(self, request: ControlRequest, record: records.StopMesh) -> None:
        uid, ranks, reason = record
        grace = config.value("cleanup_timeout") + config.value("process_exit_timeout")
        if ranks is None:
            meshes = [self.procs.meshes[uid]] if uid in self.procs.meshes else []
            self.procs.stop_meshes(meshes, reason, grace, request.answer)
        else:
            self.procs.stop(self.procs.of(uid, ranks), reason, grace, request.answer)

    @handles(records.StopClient)
    def _stop_client(self, request: ControlRequest, record: records.StopClient) -> None:
        meshes = [mesh for mesh in self.procs.meshes.values() if mesh.root == record.root]
        self.procs.stop_meshes(meshes, record.reason, record.grace, request.answer)

    def _requester_lost(self, address: ProcAddress) -> None:
        self._subscribers.pop(address, None)
        orphans = [mesh for mesh in self.procs.meshes.values() if mesh.owner.proc == address]
        self.procs.stop_meshes(
            orphans, f"its owner's process {address.proc} is gone", _orphan_grace()
        )

    # the end

    @handles(records.ShutDownHost)
    def _shut_down_host(self, request: ControlRequest, record: records.ShutDownHost) -> None:
        def stopped() -> None:
            finish = countdown(1, answer)
            self.procs.output.flush(lambda: self.hub.poller.call_soon(finish))
            self.hub.poller.call_later(_FLUSH_BOUND, finish)

        def answer() -> None:
            request.answer()
            if request.peer.host in self.hub.names:
                self.hub.poller.stop()
            else:
                self._ends_with = request.peer.host
                self.hub.poller.call_later(_LET_GO, self.hub.poller.stop)

        self._shut_down(record.reason, record.grace, request.peer, stopped)

    @handles(records.EndHost)
    def _end_host(self, request: ControlRequest, record: records.EndHost) -> None:
        if self._ends_with is not None:
            self.hub.poller.stop()

    def end_when_unused(self, limit: float) -> None:
        """Shut down after `limit` seconds without a client, or an eighth more; 0 is never."""

        def look(unused: int, attached: int) -> None:
            used = bool(self._subscribers) or attached != self._attach_count
            if not used and unused == _LOOKS:
                reason = f"no client was attached for {limit:g} s"
                self._shut_down(reason, _orphan_grace(), self.hub.root, self.hub.poller.stop)
            else:
                then = partial(look, 0 if used else unused + 1, self._attach_count)
                self.hub.poller.call_later(limit / _LOOKS, then)

        if limit:
            look(0, 0)

    def parent_gone(self, pidfd: int, pid: int) -> None:
        self.hub.poller.remove(pidfd)
        reason = f"process {pid}, {WORKER_ENDED}"
        self._shut_down(reason, _orphan_grace(), self.hub.root, self.hub.poller.stop)

    def _shut_down(
        self, reason: str, grace: float, client: ProcAddress, done: Callable[[], None]
    ) -> None:
        """Stop everything: meshes of `client` are stopped; other owners are told that theirs are
        lost.
        """
        note("host", "shuts down: %s", reason)
        finish = countdown(1, done)
        self.reason = reason
        for mesh in self.procs.meshes.values():
            if mesh.root != client and mesh.owner.proc.host not in self.hub.names:
                self.procs.take_from_owner(
                    mesh, host_lost(self.hub.address.host, reason, os.getpid())
                )
        self.procs.stop_all(reason, grace, finish)
        # the spawner may be stuck in an import
        self.hub.poller.call_later(grace + _STUCK_GRACE, finish)

    def _spawner_lost(self, why: str) -> None:
        """End this agent with its spawner, as every proc does: those who depend on it see this
        host as gone.
        """
        self.reason = why  # which the farewell tells clients of other hosts
        own_client = self._subscribers.get(self.hub.root)
        if own_client is not None:  # before the connection closes, which would leave it guessing
            own_client.answer(host_lost(str(self.hub.address), why, os.getpid()))
        self.hub.poller.stop()


def _orphan_grace() -> float:
    """Seconds that procs get to clean up when their owner is gone."""
    limit: float = config.value("mesh_orphan_timeout")
    return min(_ORPHAN_GRACE, limit)
