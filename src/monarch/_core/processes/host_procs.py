"""The procs of one host: feeds events to each `ProcEntry`, carries out its instructions.

The way of a death, one hop each: `Spawner._report_changes` → `SpawnerLink._hear` →
`HostProcs._changed` → `ProcEntry.exited` (or "silent", see there) → `HostProcs._release`,
`_announce`, `_settle`, `_tell_owner`, `_clear`, in that order.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any

from ... import config
from ..._child_watch import unreaped_status
from ..._lazy import note
from ..._oom_killer import OutOfMemory
from ..._words import host_here
from ..calls.pending import countdown
from ..hub import life
from ..hub.contracts import Hub
from ..hub.control import send_record
from ..hub.control_records import HostedProc, ProcReady, ProcsEnded, StopProc
from ..hub.control_service import ControlRequest
from ..hub.spawn_requests import SpawnRequest
from ..net import unix
from ..supervision.failure import FROZEN, KILLED, MISSING, UNSTARTED, Failure, frozen_reason
from ..supervision.tombstones import Tombstones
from ..wire.address import SYSTEM, ProcAddress
from .black_boxes import BlackBoxes
from .control import Kill
from .heartbeat import Pauses
from .leftovers import Leftovers
from .proc_entry import ASKED, ProcEntry, SpawnedMesh
from .proc_output import ProcOutput, Publish
from .resolver import Resolver
from .spawner_link import MakeSpawner

_OWN = f"{__name__.partition('.')[0]}."  # modules of this package

_EXIT_REPORTED = 0.05  # seconds after which the agent looks itself how a proc has ended
# seconds after which a proc that is to end counts as one that does not serve yet
_READY_EXPECTED = 0.3
# rounds of the poller until a proc has said all: one accepts its connection, the next reads
_LAST_WORDS = 3

# descriptors of a proc here: its output, and errors, a pidfd, a connection, its black box
_FILES, _OWN_FILES = 5, 24
_FULL = (
    "OSError: Too many open files: the host agent has {} processes here, takes {} files for each,"
    " and may have {}. Raise `ulimit -Hn` where the program, or the worker, is started; or spawn fewer"
)

Done = Callable[[], None]


def _nothing() -> None: ...


class HostProcs:
    """The procs of this host, and the meshes that they belong to.

    Args:
        hub: Hub of the agent.
        spawner: Makes the way to the spawner.
        spawner_lost: Called with the reason when that is gone.
        publish: Takes what procs print, for the client that they belong to.

    Attributes:
        meshes: By id; those that were stopped are forgotten.
        output: Reads what procs print.
        resolver: Tells what became of a proc.
        boxes: Keeps what procs leave that fail.
    """

    def __init__(
        self, hub: Hub, spawner: MakeSpawner, spawner_lost: Callable[[str], None], publish: Publish
    ) -> None:
        self._hub = hub
        self._poller = hub.poller
        self.meshes: dict[str, SpawnedMesh] = {}
        self.output = ProcOutput(hub.poller, publish, lambda: len(self.meshes) > 1)
        self.resolver = Resolver(hub.poller, self._outcome, self._probe)
        self._procs: dict[str, ProcEntry] = {}
        self._past: Tombstones[str] = Tombstones()  # procs of meshes that were stopped
        self._running: dict[int, tuple[ProcEntry, int]] = {}  # by pid, with a pidfd
        self._starting: dict[ProcEntry, _Starting] = {}
        self._awaiting_end: dict[ProcEntry, list[Done]] = {}
        self.boxes = BlackBoxes()
        self._machine = host_here()
        self.memory = OutOfMemory()
        self._leftovers = Leftovers(hub.poller)
        self._pauses = Pauses(hub.poller, self._frozen)
        self._spawner = spawner(self._heard, spawner_lost)

    # what others want

    def of(self, uid: str, ranks: Collection[int]) -> list[ProcEntry]:
        """Return the procs of these ranks of a mesh; none if it is not here any more."""
        mesh = self.meshes.get(uid)
        return (
            [] if mesh is None else [entry for rank, entry in mesh.procs.items() if rank in ranks]
        )

    def describe(self, ended: bool) -> list[HostedProc]:
        """Describe the procs that have not ended; also those that have."""
        entries = [entry for mesh in self.meshes.values() for entry in mesh.procs.values()]
        return [entry.describe() for entry in entries if ended or entry.end is None]

    def start(self, request: SpawnRequest, answer: Callable[[Exception | None], None]) -> None:
        """Start the procs of a mesh, for the first time or again; `answer` is called with None when
        all are up.

        Args:
            request: With the ranks of this host.
        """
        ranks = [start.rank for start in request.starts]
        living = [entry.label for entry in self.of(request.mesh, ranks) if entry.end is None]
        if living:  # given up, but the spawner may yet start them
            names = ", ".join(living)
            answer(RuntimeError(f"{names} can't start again: the process before has not ended"))
            return
        mesh = self.meshes.get(request.mesh) or self.meshes.setdefault(
            request.mesh, SpawnedMesh(request, self._machine)
        )
        starting = _Starting(answer)
        for start in request.starts:
            address = ProcAddress(request.host, request.proc_name(start.rank))
            before = mesh.procs.get(start.rank)
            previous = before.end if before is not None else None
            entry = ProcEntry(
                address, mesh, start.rank, start.incarnation, time.monotonic(), previous
            )
            # before the spawner is asked: answers may come at once
            mesh.procs[start.rank] = self._procs[address.proc] = entry
            starting.entries[entry] = None
            self._starting[entry] = starting
        self._spawner.send(request._replace(starts=tuple(map(mesh.as_wanted, request.starts))))
        timeout = config.value("host_spawn_ready_timeout")
        if timeout:
            imports = ", ".join(each for each in request.preload if not each.startswith(_OWN))
            self._poller.call_later(
                timeout, lambda: self._spawn_timed_out(mesh, starting, timeout, imports)
            )

    def ready(self, request: ControlRequest, record: ProcReady) -> None:
        """A proc says that it is up, and where its black box is."""
        entry = self._procs.get(request.peer.proc)
        if entry is not None:
            entry.greeting = request
            self.boxes.take_over(entry, record)
            self._happen(entry, "ready")

    def stop(self, entries: Iterable[ProcEntry], reason: str, grace: float, done: Done) -> None:
        """Stop procs, let them clean up; `done` is called when they are gone.

        Args:
            grace: Seconds after which they are killed.
        """
        living = [entry for entry in entries if entry.end is None]
        gone = countdown(len(living), done)
        for entry in living:
            self._awaiting_end.setdefault(entry, []).append(gone)
            self._follow(entry, entry.stop(reason, time.monotonic()))

        def give_up() -> None:
            for entry in living:
                if entry.end is None:
                    self._happen(entry, "given_up")

        if living:
            self._poller.call_later(grace, give_up)

    def stop_meshes(
        self, meshes: list[SpawnedMesh], reason: str, grace: float, done: Done = _nothing
    ) -> None:
        """Stop whole meshes, for good."""
        entries = [entry for mesh in meshes for entry in mesh.procs.values()]
        for mesh in meshes:
            # first: an end on the way must not count as one to be restarted
            mesh.restarts = False
        self.abandon(entries)

        def stopped() -> None:
            done()
            for mesh in meshes:
                mesh.over = True
                self._forget(mesh)

        self.stop(entries, reason, grace, stopped)

    def stop_all(self, reason: str, grace: float, done: Done) -> None:
        """Stop everything; nothing is started again."""
        for mesh in self.meshes.values():
            mesh.restarts = False
        self.stop(list(self._procs.values()), reason, grace, done)

    def take_from_owner(self, mesh: SpawnedMesh, failure: Failure) -> None:
        """A mesh is about to be stopped, which its owner does not want."""
        living = [entry for entry in mesh.procs.values() if entry.end is None]
        for entry in living:
            entry.take(failure)
        send_record(
            self._hub, mesh.owner.proc, ProcsEnded([(entry.address, failure) for entry in living])
        )

    def kill(self, entries: Iterable[ProcEntry], reason: str, done: Done) -> None:
        """Kill procs, a failure to their owner; call `done` when they are gone and it knows."""
        living = [entry for entry in entries if entry.end is None]
        gone = countdown(len(living), done)
        for entry in living:
            self._awaiting_end.setdefault(entry, []).append(gone)
            self._condemn(entry, KILLED, f"the process was killed: {reason}")

    def abandon(self, entries: Iterable[ProcEntry]) -> None:
        """Tell waiters that those of these procs that have ended will not start again."""
        for entry in entries:
            if entry.end is not None:
                self._happen(entry, "abandoned")

    def kill_leftovers(self) -> None:
        """Kill, at the end of this process, all that its procs have started."""
        self._leftovers.kill(
            pid for pid, (entry, _) in self._running.items() if entry.mesh.ends_groups
        )

    # what the spawner says

    def _heard(self, record: Any, fds: list[int]) -> None:
        getattr(self, f"_{type(record).__name__.lower()}")(*record, *fds)

    def _bound(self, uid: str, ranks: list[int]) -> None:
        for rank in ranks:
            entry = self.meshes[uid].procs[rank]
            # not when it is forked: it may be up before the spawner says so
            life.remember(entry.address, SYSTEM, life.CREATED)
            self._happen(entry, "bound")

    def _unstarted(self, uid: str, ranks: list[int], error: str) -> None:
        for rank in ranks:
            entry = self.meshes[uid].procs[rank]
            self._follow(entry, entry.failed(error, time.monotonic()))

    def _forked(self, uid: str, rank: int, pid: int, *fds: int) -> None:
        limit, wanted = os.sysconf("SC_OPEN_MAX"), _FILES * (len(self._running) + 1) + _OWN_FILES
        # the kernel leaves out what does not fit; the others that start have connections already
        if len(fds) < 3 or wanted > limit - limit // 12:
            for fd in fds:
                os.close(fd)
            # by the spawner, its parent: the number can't be another process's before that has
            # reaped it
            self._spawner.send(Kill(pid))
            self._unstarted(uid, [rank], _FULL.format(len(self._running), _FILES, limit))
            return
        out, err, pidfd = fds
        entry = self.meshes[uid].procs[rank]
        self._running[pid] = entry, pidfd
        note("procs", "%s started, process %d", entry.label, pid)
        self.output.follow(entry, out, err)
        self._poller.add(pidfd, lambda events: self._look_soon(pid, pidfd))
        self._follow(entry, entry.forked(pid, time.monotonic()))

    def _changed(self, pid: int, status: int) -> None:
        # it was killed at once, because it could not be handed over, or is known to have ended
        if pid not in self._running:
            return
        self._pauses.changed(pid, os.WIFSTOPPED(status))
        if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
            return
        entry, pidfd = self._running.pop(pid)
        self._poller.remove(pidfd)
        os.close(pidfd)
        # before the end is told: the report of a failure has the last lines of its output
        self.output.finish(entry)
        suspicion = self.memory.explain(pid, entry.unexplained_kill(status))
        self._follow(entry, entry.exited(status, suspicion, time.monotonic()))

    # what else becomes of procs

    def _look_soon(self, pid: int, pidfd: int) -> None:
        self._poller.remove(pidfd)
        # the spawner reaps it as a rule, within milliseconds
        self._poller.call_later(_EXIT_REPORTED, lambda: self._look_for(pid))

    def _look_for(self, pid: int) -> None:
        """The spawner may be busy with an import, or frozen, and not say that a proc has ended."""
        status = unreaped_status(pid) if pid in self._running else None
        if status is not None:
            self._changed(pid, status)

    def _frozen(self, pid: int, seconds: float) -> None:
        """A proc that has been given up must not come back: others go on without it."""
        self._condemn(self._running[pid][0], FROZEN, f"the process was {frozen_reason(seconds)}")

    def _spawn_timed_out(
        self, mesh: SpawnedMesh, starting: _Starting, timeout: float, imports: str
    ) -> None:
        late = [entry for entry in starting.entries if entry.end is None]
        limit = f"after {timeout:g}s (host_spawn_ready_timeout)"
        # a busy machine, or a slow file system, may need that long for torch
        busy = imports and all(entry.state == ASKED for entry in late)
        why = f"; the host still imports {imports}" if busy else ""
        if late:
            names = ", ".join(entry.label for entry in late)
            starting.failed(
                f"error spawning proc mesh {mesh.name}: {limit} not ready: {names}{why}"
            )
        for entry in late:  # callers of its actors are told
            self._condemn(entry, UNSTARTED, f"the process was killed: it was not up {limit}{why}")

    def _outcome(self, name: str, connected: float, waited: bool) -> tuple[bool, Failure | None]:
        if name in self._past:
            return True, self._past.get(name)
        entry = self._procs.get(name)
        if entry is None:
            return False, Failure(
                MISSING, f"this host knows no process {name}", proc=name, host=self._machine
            )
        return entry.outcome(connected, time.monotonic(), waited)

    def _probe(self, name: str) -> None:
        """Look whether a proc still listens, which a sender could not reach although it runs."""
        entry = self._procs.get(name)
        if entry is None or not entry.listens:
            return
        try:
            unix.connect(self._hub.local(entry.address)).close()
        except ConnectionRefusedError:
            self._follow(entry, entry.unreached(time.monotonic()))
        except OSError:  # too many wait there, or this process has a shortage
            pass
        else:
            entry.reached()

    def _forget(self, mesh: SpawnedMesh) -> None:
        """Keep only the end of each proc, once all have ended: one given up may still come up."""
        if all(entry.end is not None for entry in mesh.procs.values()):
            self.meshes.pop(mesh.uid, None)
            for entry in mesh.procs.values():
                if self._procs.pop(entry.address.proc, None) is not None and entry.end is not None:
                    self._past.note(entry.address.proc, entry.end)

    # what follows

    def _happen(self, entry: ProcEntry, event: str) -> None:
        self._follow(entry, entry.happen(event, time.monotonic()))

    def _condemn(self, entry: ProcEntry, cause: str, reason: str) -> None:
        self._follow(entry, entry.kill(cause, reason, time.monotonic()))

    def _follow(self, entry: ProcEntry, instructions: tuple[str, ...]) -> None:
        for instruction in instructions:
            getattr(self, f"_{instruction}")(entry)

    def _settle(self, entry: ProcEntry) -> None:
        self.resolver.settle(entry.address.proc)

    def _report(self, entry: ProcEntry) -> None:
        life.remember(entry.address, SYSTEM, life.IDLE)
        self._starting.pop(entry).up(entry)

    def _refuse(self, entry: ProcEntry) -> None:
        starting = self._starting.pop(entry, None)
        if starting is not None:
            starting.failed(entry.why_unstarted())

    def _ask_to_end(self, entry: ProcEntry) -> None:
        told = entry.stopped(time.monotonic())
        # the gateway's way to it has ended, or waits, if another host called it before it was up
        why = Failure(told.cause, told.reason, restarts=told.restarts)
        entry.greeting.send_back(StopProc(why))

    def _hurry(self, entry: ProcEntry) -> None:
        self._poller.call_later(_READY_EXPECTED, lambda: self._linger(entry, "overdue"))

    def _kill(self, entry: ProcEntry) -> None:
        if entry.pid in self._running:
            note("procs", "%s is killed, process %d", entry.label, entry.pid)
            with suppress(ProcessLookupError):
                # a pidfd cannot hit another process that got its number
                signal.pidfd_send_signal(self._running[entry.pid][1], signal.SIGKILL)

    def _linger(self, entry: ProcEntry, event: str = "silent", rounds: int = _LAST_WORDS) -> None:
        if rounds:
            self._poller.call_soon(lambda: self._linger(entry, event, rounds - 1))
        else:
            self._happen(entry, event)

    def _release(self, entry: ProcEntry) -> None:
        if entry.end is not None:
            life.remember_end(entry.address, entry.end)
            self.boxes.empty_out(entry)
        unix.release(self._hub.local(entry.address))
        peer = self._hub.peers.get(entry.address)
        if peer is not None and entry.end is not None:
            # what has come since it was asked to end waits on, for the next incarnation: other
            # hosts have been told of this end, and will not be told of it again
            peer.end(entry.end)
            if not entry.end.restarts:
                del self._hub.peers[entry.address]

    def _announce(self, entry: ProcEntry) -> None:
        """Tell the gateway, whether or not this process has talked to it."""
        assert entry.end is not None
        self._hub.tell(entry.address, entry.end, ())

    def _tell_owner(self, entry: ProcEntry) -> None:
        end, owner = entry.end, entry.mesh.owner.proc
        assert end is not None
        note("procs", "%s ended (%s): %s; told %s", entry.label, end.cause, end.reason, owner)
        send_record(self._hub, owner, ProcsEnded([(entry.address, end)]))

    def _clear(self, entry: ProcEntry) -> None:
        if entry.pid and entry.mesh.ends_groups:
            self._leftovers.end(entry.pid, lambda: self._end_waits(entry))
        else:
            self._end_waits(entry)

    def _end_waits(self, entry: ProcEntry) -> None:
        for gone in self._awaiting_end.pop(entry, []):
            gone()
        if entry.mesh.over:  # one that was given up: it was forked late, to be killed
            self._forget(entry.mesh)


class _Starting:
    """Procs that were asked for together, and the answer when all of them are up."""

    def __init__(self, answer: Callable[[Exception | None], None]) -> None:
        # those that are not up yet, in the order of their ranks
        self.entries: dict[ProcEntry, None] = {}
        self._answer: Callable[[Exception | None], None] | None = answer

    def up(self, entry: ProcEntry) -> None:
        self.entries.pop(entry)
        if not self.entries:
            self._tell(None)

    def failed(self, text: str) -> None:
        self._tell(ValueError(text))

    def _tell(self, error: Exception | None) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(error)
