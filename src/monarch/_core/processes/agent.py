"""The host agent: one process per host that starts, watches and stops procs. It runs no user code.

What it waits for: requests from clients and procs, its spawner's reports of what becomes of procs, their output, the end
of each (a pidfd, for when the spawner cannot report it), what becomes of the spawner, what other hosts say (see
`host_gateway`), and the end of the client or worker that started it (a pidfd), after which it stops everything and ends.
"""

from __future__ import annotations

import itertools
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ... import config
from ..calls.countdown import countdown
from ..hub.contracts import Origin
from ..hub.node import Node
from ..hub.system import System
from ..net import unix
from ..supervision.failure import MISSING, UNSTARTED, Failure, frozen_reason, host_lost
from ..supervision.fates import Fates
from ..wire.address import AGENT, ProcAddress, random_name
from ..wire.frame import Frame
from .children import ChildWatch, changes, unreaped_status
from .control import ControlQueue, receive_message
from .heartbeat import Pause
from .leftovers import Leftovers
from .oom_killer import OutOfMemory
from .output import Mark, Output
from .proc_entry import Mesh, ProcEntry, Starting
from .proc_output import ProcOutput
from .spawn_request import Kill, SpawnRequest

if TYPE_CHECKING:
    from ..net.connection import Connection
    from ..net.trust import Trust
    from .host_gateway import HostGateway

_EXIT_REPORTED = 0.05  # seconds after which the agent looks itself how a proc has ended
_EXIT_EXPECTED = 5.0  # seconds within which the exit of a proc whose connection broke is known
_HEARS = 1.0, 2.5  # seconds after which a proc whose connection broke, and that runs on, is tried
_READY_EXPECTED = 0.3  # seconds after which a proc that is to end counts as one that does not serve yet
_STUCK_GRACE = 2.0  # seconds after which the agent ends although its spawner does not answer
_LET_GO = 10.0  # seconds after which the agent ends although the client that has shut it down does not say so
_ORPHAN_GRACE = 1.0  # seconds, at most, to clean up when nobody is left to ask for more


class Agent(System):
    """Args:
    node: Hub of this process.
    control: Socket to the spawner.
    spawner_pid: Its process, a child of this one.
    """

    def __init__(self, node: Node, control: socket.socket, spawner_pid: int) -> None:
        super().__init__(node)
        self._control = control
        self._spawner_pid = spawner_pid
        self._spawner_pause: Pause | None = None
        self._memory = OutOfMemory()
        self._leftovers = Leftovers(node.poller)
        self._meshes: dict[str, Mesh] = {}
        self._procs: dict[str, ProcEntry] = {}
        self._past: Fates[str] = Fates()  # procs of meshes that were stopped
        self._by_pid: dict[int, ProcEntry] = {}
        self._resolving: dict[str, list[Callable[[], None]]] = {}
        self._awaiting_end: dict[str, list[Callable[[], None]]] = {}
        self._output = ProcOutput(node.poller, self._publish, lambda: len(self._meshes) > 1)
        self._subscribers: dict[ProcAddress, tuple[Origin, Frame]] = {}
        self._published = itertools.count(1)
        node.poller.add(control.fileno(), self._spawner_said)
        self._to_spawner = ControlQueue(control, lambda events: node.poller.modify(control.fileno(), events))
        node.inbound_lost_hooks.append(self._requester_lost)
        self.gateway: HostGateway | None = None
        node.gateway = self._first_abroad
        self.identity = random_name()  # by which a client sees that it knows this host by two names
        self.reason = "it failed"  # why it ends
        self._ends_with: str | None = None  # host of the client that has shut it down
        self._children = ChildWatch()
        node.poller.add(self._children.fd, lambda events: self._spawner_changed())
        self._spawner_changed()  # before this agent was told

    # requests

    def on_ping(self, origin: Origin, frame: Frame) -> None:
        """A sign of life is wanted."""
        self.answer(origin, frame)

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
        self._output.passed_on(lambda: self._publish(origin.peer, mark))

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

    def on_named(self, origin: Origin, frame: Frame, uid: str, name: str) -> None:
        """Actors have come to procs that had no name."""
        if uid in self._meshes:  # not stopped meanwhile
            self._meshes[uid].name = name

    def on_stop_client(self, origin: Origin, frame: Frame, root: ProcAddress, reason: str, grace: float) -> None:
        """A client leaves: stop what it has here, let it clean up, answer when it is gone."""
        meshes = [mesh for mesh in self._meshes.values() if mesh.root == root]
        self._stop_meshes(meshes, reason, grace, lambda: self.answer(origin, frame))

    def _publish(self, client: ProcAddress, output: Output | Mark) -> None:
        subscriber = self._subscribers.get(client)
        if subscriber is not None:
            number = next(self._published)  # when a host in between is lost, what was said is said again
            self.answer(*subscriber, output, meta=number.to_bytes(8, "big"))

    def _host_gone(self, host: str) -> None:
        """Another host is gone: what its clients have here goes, too."""
        if host == self._ends_with:
            self.node.poller.stop()
        for client in [client for client in self._subscribers if client.host == host]:
            del self._subscribers[client]
        orphans = [mesh for mesh in self._meshes.values() if host in (mesh.root.host, mesh.owner.proc.host)]
        self._stop_meshes(orphans, "the host of its client is gone", _orphan_grace(), lambda: None)

    def _stop_meshes(self, meshes: list[Mesh], reason: str, grace: float, done: Callable[[], None]) -> None:
        """Stop whole meshes, for good."""
        entries = [entry for mesh in meshes for entry in mesh.procs.values()]
        for mesh in meshes:
            mesh.restarts = False
        self._abandon(entries)

        def stopped() -> None:
            done()
            for mesh in meshes:
                self._forget(mesh)

        self._stop(entries, reason, grace, stopped)

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

    def on_spawn_procs(self, origin: Origin, frame: Frame, request: SpawnRequest) -> None:
        mesh = self._meshes[request.mesh] = Mesh(request)
        self._start(mesh, request.on_host(self.node.called_by(origin), frame.rank), Starting(origin, frame))

    def on_restart_procs(self, origin: Origin, frame: Frame, request: SpawnRequest) -> None:
        """Procs of a mesh that have ended, or never came up, shall start again under their old names."""
        mesh = self._meshes.get(request.mesh)
        if mesh is None or not mesh.restarts:
            self.answer_error(origin, frame, ValueError(f"{request.name} was stopped"))
            return
        self._start(mesh, request.on_host(self.node.called_by(origin), frame.rank), Starting(origin, frame))

    def on_abandon_procs(self, origin: Origin, frame: Frame, uid: str, ranks: list[int]) -> None:
        """These procs will not start again; whoever waits for that is told."""
        mesh = self._meshes.get(uid)
        if mesh is not None:
            self._abandon([entry for rank, entry in mesh.procs.items() if rank in ranks])
        self.answer(origin, frame)

    def _start(self, mesh: Mesh, request: SpawnRequest, starting: Starting) -> None:
        for start in request.starts:
            address = ProcAddress(request.host, request.proc_name(start.rank))
            entry = ProcEntry(address, mesh, starting, start.rank, start.incarnation)
            starting.entries.append(entry)
            if start.rank in mesh.procs:
                entry.previous = mesh.procs[start.rank].end
            mesh.procs[start.rank] = self._procs[address.proc] = entry
        self._to_spawner.send(request)
        timeout = config.value("host_spawn_ready_timeout")
        if timeout:
            self.node.poller.call_later(timeout, lambda: self._spawn_timed_out(mesh, starting, timeout))

    def on_ready(self, origin: Origin, frame: Frame) -> None:
        """A proc is up."""
        entry = self._procs.get(origin.peer.proc)
        if entry is None:
            return
        entry.ready = True
        starting = entry.starting
        if starting.requester is not None and all(other.ready for other in starting.entries):
            self.answer(*starting.requester, True)
            starting.requester = None

    def on_resolve(self, origin: Origin, frame: Frame, name: str, connected: float) -> None:
        """What became of a proc: None when it listens, else how it ended. Answered when that is known.

        Args:
            connected: When the connection was made that broke (`time.monotonic`); 0 if there was none yet.
        """
        entry = self._procs.get(name)
        if name in self._past:
            self.answer(origin, frame, self._past.get(name))
        elif entry is None:
            self._resolve_later(origin, frame, name, connected)
        elif entry.previous is not None and 0 < connected < entry.created:  # it was one to the incarnation before
            self.answer(origin, frame, entry.previous)
        elif entry.end is not None and (connected or not entry.end.restarts):
            self.answer(origin, frame, entry.end)
        elif entry.stopping is not None and entry.end is None and (connected or not entry.mesh.restarts):
            # it closes its connections first, then it ends
            self.answer(origin, frame, entry.stopped())
        elif entry.serves and not connected:
            self._check_hearing(name)
            self.answer(origin, frame, None)
        else:
            self._resolve_later(origin, frame, name, connected)

    def on_stop_mesh(self, origin: Origin, frame: Frame, uid: str, ranks: list[int] | None, reason: str) -> None:
        """Stop procs, let them clean up, answer when they are gone."""
        mesh = self._meshes.get(uid)
        grace = config.value("cleanup_timeout") + config.value("process_exit_timeout")
        if ranks is None:
            self._stop_meshes([] if mesh is None else [mesh], reason, grace, lambda: self.answer(origin, frame))
        else:
            entries = [] if mesh is None else [entry for rank, entry in mesh.procs.items() if rank in ranks]
            self._stop(entries, reason, grace, lambda: self.answer(origin, frame))

    def on_kill_procs(self, origin: Origin, frame: Frame, uid: str, ranks: list[int], reason: str) -> None:
        """Kill procs, which their owner takes as any failure; answer when they are gone and it has been told."""
        mesh = self._meshes.get(uid)
        living = [] if mesh is None else [mesh.procs[rank] for rank in ranks if mesh.procs[rank].end is None]
        gone = countdown(len(living), lambda: self.node.poller.call_soon(lambda: self.answer(origin, frame)))
        for entry in living:
            self._awaiting_end.setdefault(entry.address.proc, []).append(gone)
            entry.killed = reason
            entry.kill()

    def _forget(self, mesh: Mesh) -> None:
        """All but the end of each proc, unless one that was given up may still come up, to be killed."""
        if all(entry.end is not None for entry in mesh.procs.values()):
            self._meshes.pop(mesh.uid, None)
            for entry in mesh.procs.values():
                if self._procs.pop(entry.address.proc, None) is not None and entry.end is not None:
                    self._past.note(entry.address.proc, entry.end)

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
        finished = False
        self.reason = reason
        for mesh in self._meshes.values():
            mesh.restarts = False
            if mesh.root != client and mesh.owner.proc.host not in self.node.names:
                self._take_from_owner(mesh, host_lost(self.node.address.host, reason, os.getpid()))

        def finish() -> None:
            nonlocal finished
            if not finished:
                finished = True
                done()

        self._stop(list(self._procs.values()), reason, grace, finish)
        self.node.poller.call_later(grace + _STUCK_GRACE, finish)  # the spawner may be stuck in an import

    def _take_from_owner(self, mesh: Mesh, failure: Failure) -> None:
        living = [entry for entry in mesh.procs.values() if entry.end is None]
        for entry in living:
            entry.taken = failure
        self.node.call_system(mesh.owner.proc, "procs_ended", [(entry.address, failure) for entry in living])

    def _abandon(self, entries: list[ProcEntry]) -> None:
        for entry in entries:
            if entry.end is not None and entry.end.restarts:
                entry.end = entry.end._replace(restarts=False)
                self._resolved(entry.address.proc)

    def _stop(self, entries: list[ProcEntry], reason: str, grace: float, done: Callable[[], None]) -> None:
        living = {entry.address.proc: entry for entry in entries if entry.end is None}
        if not living:
            done()
            return

        def ended(name: str) -> None:
            if living.pop(name, None) is not None and not living:
                done()

        def give_up() -> None:
            for name, entry in list(living.items()):
                entry.kill()
                if not entry.pid:  # not even forked: the spawner is stuck; it will be killed should it ever start
                    ended(name)

        for name, entry in living.items():
            self._awaiting_end.setdefault(name, []).append(lambda name=name: ended(name))  # type: ignore[misc]  # bound now
            if entry.stopping is None:
                entry.stopping = reason
                if entry.pid:  # it may serve, and have answered others, before this process has read that it is ready
                    end = entry.stopped()
                    self.node.call_system(entry.address, "shutdown", end.reason, end.cause, end.restarts)
                if not entry.ready:
                    self.node.poller.call_later(_READY_EXPECTED, lambda entry=entry: entry.ready or entry.kill())  # type: ignore[misc]  # bound now
        self.node.poller.call_later(grace, give_up)

    # the spawner

    def _spawner_said(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._to_spawner.flush()
        try:
            message, fds = receive_message(self._control)
        except BlockingIOError:
            return
        except (EOFError, ConnectionError):
            self._spawner_lost("the process that forks its procs was killed")
            return
        kind, *rest = message
        getattr(self, f"_{kind}")(*rest, *fds)

    def _spawner_changed(self) -> None:
        self._children.clear()
        for pid, status in changes(self._spawner_pid):
            if self._spawner_pause is not None:
                self._spawner_pause.end()
                self._spawner_pause = None
            if os.WIFSTOPPED(status):
                self._spawner_pause = Pause(self.node.poller, pid, self._spawner_frozen)

    def _spawner_frozen(self, seconds: float) -> None:
        os.kill(self._spawner_pid, signal.SIGKILL)  # its parent is this process, so the number is still its own
        self._spawner_lost(f"the process that forks its procs was {frozen_reason(seconds)}")

    def _spawner_lost(self, why: str) -> None:
        """Every proc ends with the spawner, and this agent does, too: whoever depends on it sees this host as gone."""
        self.reason = why  # which the farewell tells clients of other hosts
        own_client = self._subscribers.get(self.node.root)
        if own_client is not None:  # before the connection closes, which would leave it guessing
            self.answer(*own_client, host_lost(str(self.node.address), why, os.getpid()))
        self.node.poller.stop()

    def _bound(self, uid: str) -> None:
        for entry in self._meshes[uid].procs.values():
            if entry.end is None:
                entry.bound = True
                self._resolved(entry.address.proc)

    def _refused(self, uid: str, error: str) -> None:
        mesh = self._meshes[uid]
        reason = f"it could not be started: {error}"
        failure = Failure(UNSTARTED, reason, mesh=mesh.name, host=socket.gethostname(), restarts=mesh.restarts)
        for entry in mesh.procs.values():
            if entry.end is None and not entry.bound:
                self._spawn_failed(entry.starting, f"error creating procs of {mesh.name}: {error}")
                self._has_ended(entry, failure._replace(incarnation=entry.incarnation))

    def _failed(self, uid: str, rank: int, error: str) -> None:
        """One proc could not be started."""
        mesh = self._meshes[uid]
        entry = mesh.procs[rank]
        self._spawn_failed(entry.starting, f"error creating proc {entry.label}: {error}")
        reason = f"it could not be started: {error}"
        failure = Failure(
            UNSTARTED, reason, mesh=mesh.name, rank=rank, proc=entry.label, host=socket.gethostname(),
            restarts=mesh.restarts, incarnation=entry.incarnation,
        )  # fmt: skip
        self._has_ended(entry, failure)

    def _tell_owner(self, entry: ProcEntry) -> None:
        self.node.call_system(entry.mesh.owner.proc, "procs_ended", [(entry.address, entry.end)])

    def _forked(self, uid: str, rank: int, pid: int, *fds: int) -> None:
        entry = self._meshes[uid].procs[rank]
        if len(fds) < 3:  # the kernel leaves out what does not fit
            for fd in fds:
                os.close(fd)
            self._to_spawner.send(Kill(pid))
            self._failed(uid, rank, "OSError: Too many open files in the host agent; raise `ulimit -n`")
            return
        out, err, pidfd = fds
        entry.pid = pid
        entry.pidfd = pidfd
        self._by_pid[pid] = entry
        self._output.follow(entry, out, err)
        self.node.poller.add(pidfd, lambda events: self._process_ended(entry))
        if entry.stopping is not None or entry.killed is not None:
            entry.kill()

    def _paused(self, pid: int) -> None:
        entry = self._by_pid.get(pid)
        if entry is not None:
            entry.moves()  # the kernel may leave out that it went on in between
            entry.pause = Pause(self.node.poller, pid, lambda seconds: self._frozen(entry, seconds))

    def _resumed(self, pid: int) -> None:
        entry = self._by_pid.get(pid)
        if entry is not None:
            entry.moves()

    @staticmethod
    def _frozen(entry: ProcEntry, seconds: float) -> None:
        """A proc that has been given up must not come back: others go on without it."""
        entry.frozen = seconds
        entry.kill()

    def _process_ended(self, entry: ProcEntry) -> None:
        self.node.poller.remove(entry.pidfd)
        self.node.poller.call_later(_EXIT_REPORTED, lambda: self._look_for(entry.pid))

    def _look_for(self, pid: int) -> None:
        """The spawner may be busy with an import, or frozen, and not say that a proc has ended."""
        status = unreaped_status(pid) if pid in self._by_pid else None
        if status is not None:
            self._exited(pid, status)

    def _exited(self, pid: int, status: int) -> None:
        entry = self._by_pid.pop(pid, None)
        if entry is None:  # it was killed at once, because it could not be handed over
            return
        self._output.finish(entry)
        self.node.poller.remove(entry.pidfd)
        os.close(entry.pidfd)
        entry.pidfd = -1
        entry.moves()
        self._after_last_words(entry, lambda: self._bury(entry, status))

    def _after_last_words(self, entry: ProcEntry, then: Callable[[], None], rounds: int = 3) -> None:
        """A proc that ended may have said that it was ready: a round of the poller accepts its connection, the next reads."""
        if entry.ready or not rounds:
            then()
        else:
            self.node.poller.call_soon(lambda: self._after_last_words(entry, then, rounds - 1))

    def _bury(self, entry: ProcEntry, status: int) -> None:
        end = entry.obituary(status, self._memory)
        if not entry.ready and not end.is_stop:
            end = end._replace(cause=UNSTARTED)
        if not entry.ready:
            text = f"error creating proc (host rank 0) {entry.label}: exit_code: {end.exit_code}, {end.explain()}"
            self._spawn_failed(entry.starting, text)
        self._has_ended(entry, end)
        if entry.stopping is None and entry.ready:
            self._tell_owner(entry)
        peer = self.node.peers.pop(entry.address, None)
        if peer is not None:
            peer.close()

    def _has_ended(self, entry: ProcEntry, end: Failure) -> None:
        entry.end = end = end._replace(known=time.monotonic())
        unix.release(self.node.local(entry.address))
        self.node.tell(entry.address, end, ())  # the gateway, whether or not this process has talked to it
        self._resolved(entry.address.proc)
        waiting = self._awaiting_end.pop(entry.address.proc, [])

        def gone() -> None:
            for callback in waiting:
                callback()

        if entry.pid and entry.mesh.ends_groups:
            self._leftovers.end(entry.pid, gone)
        else:
            gone()

    def kill_leftovers(self) -> None:
        """At the end: with this process go its procs, and here all that they have started."""
        self._leftovers.kill(entry.pid for entry in self._by_pid.values() if entry.mesh.ends_groups)

    def _spawn_failed(self, starting: Starting, text: str) -> None:
        if starting.requester is not None:
            self.answer_error(*starting.requester, ValueError(text))
            starting.requester = None

    def _spawn_timed_out(self, mesh: Mesh, starting: Starting, timeout: float) -> None:
        late = [entry for entry in starting.entries if not entry.ready and entry.end is None]
        if late:
            names = ", ".join(entry.label for entry in late)
            text = f"error spawning proc mesh {mesh.name}: after {timeout:g}s (host_spawn_ready_timeout) not ready: {names}"
            self._spawn_failed(starting, text)
        for entry in late:
            entry.kill()  # whoever calls its actors is told

    # who asks what became of a proc

    def _resolve_later(self, origin: Origin, frame: Frame, name: str, connected: float) -> None:
        """Answer when the proc listens or ends, or when the time is up.

        A lost connection is explained by an exit within moments; a proc not heard of may still be asked for, and one
        that ended may be started again.
        """

        def answer(final: bool) -> None:
            entry = self._procs.get(name)
            if timer.callback is None:
                return
            if not final and (entry is None or not entry.decided(connected)):
                self._resolving.setdefault(name, []).append(lambda: answer(False))
                return
            timer.cancel()
            unknown = Failure(MISSING, f"this host knows no process {name}", proc=name, host=socket.gethostname())
            self.answer(origin, frame, unknown if entry is None else entry.end)

        timeout = _EXIT_EXPECTED if connected else config.value("pending_actor_delivery_timeout")
        timer = self.node.poller.call_later(timeout, lambda: answer(True))
        for seconds in _HEARS if connected else ():
            self.node.poller.call_later(seconds, lambda: self._check_hearing(name))
        self._resolving.setdefault(name, []).append(lambda: answer(False))

    def _check_hearing(self, name: str) -> None:
        entry = self._procs.get(name)
        if entry is not None and entry.serves:
            entry.check_hearing(self.node.local(entry.address))

    def _resolved(self, name: str) -> None:
        for answer in self._resolving.pop(name, []):
            answer()

    def _requester_lost(self, address: ProcAddress) -> None:
        self._subscribers.pop(address, None)
        orphans = [mesh for mesh in self._meshes.values() if mesh.owner.proc == address]
        self._stop_meshes(orphans, f"its owner's process {address.proc} is gone", _orphan_grace(), lambda: None)


def _orphan_grace() -> float:
    """Seconds that procs get to clean up when whoever they belong to is gone."""
    limit: float = config.value("mesh_orphan_timeout")
    return min(_ORPHAN_GRACE, limit)
