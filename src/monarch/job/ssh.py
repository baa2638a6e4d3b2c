"""`SSHJob`: workers on machines that ssh reaches. `ssh_reach` has how, and why no port is open.

The names of workers belong to one program: they are paths in a folder that is its own, and goes
with it. Another that uses the same workers makes connections of its own, where workers may outlive
a program (`detach`); otherwise it uses those that are there.

What ends the workers: `kill`; the end of the program, in whatever way, or of the connection, as
both close their stdin; if they are detached, `idle_limit` seconds without a client. What ends the
wait for them: their reports, the end of ssh, `start_timeout`.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from ..errors import JobError
from ..trust import read_secret_file
from . import processes, ssh_text, trusted
from .contract import (
    KEEP,
    HostId,
    Report,
    WorkersJob,
    WorkerSpec,
    check_idle_limit,
    check_strings,
    hosts_of,
    make_secret_file,
    parse_report,
)
from .launch import Worker
from .ssh_connection import AT_ONCE, Connection, Session, hear, hostname_of
from .ssh_reach import FOLDER, Place, Reach, connections
from .state import check_mesh_names
from .trait import JobTrait
from .waiting import Waiting
from .watch import WorkerWatch

_END = 5.0  # seconds in which ssh has to end
_ANSWER = 30.0  # seconds in which a machine that is connected runs a short command
_TRANSPORTS = ("tcp", "metatls", "metatls-hostname")

T = TypeVar("T")

logger = logging.getLogger("monarch.job")

_open: set[SSHJob] = set()
"""Jobs whose connections end with this program, and not before: also if it keeps nothing but their
hosts.
"""


class _Described(NamedTuple):
    """The user's description, beside the meshes: jobs with equal ones can take each other's
    place.
    """

    python_exe: str
    ssh_args: tuple[str, ...]
    monarch_port: int
    direct: bool
    setup: tuple[str, ...]
    detach: bool
    idle_limit: float


class SSHJob(WorkersJob):
    """Hosts that are machines which ssh reaches, with one worker for each time that one is named.

    The workers end with the program, however that ends, unless they are to outlive it (`detach`).
    Other programs on this machine use the same ones meanwhile, if the job is saved: `state` does
    that unless it gets ``cached_path=None``.

    Args:
        python_exe: The interpreter of workers; by default that of this program, at the same path.
            ``~/`` is the home directory there.
        ssh_args: Options of ssh, such as ``["-J", "me@bastion", "-i", "key"]``, beside what
            ``~/.ssh/config`` has.
        monarch_port: With ``transport="tcp"``, the port of workers; by default any free one.
        transport: None forwards sockets by ssh. ``"tcp"`` opens a port on each host instead, to
            whoever has the secret of the job: for hosts that reach each other, and this machine
            them. ``"metatls"`` and ``"metatls-hostname"`` are the same.
        hosts: Name of a mesh to its hosts, as ssh takes them. `add_mesh` adds others.
        hostfile: File with the hosts of a mesh called ``hosts``, one on a line.
        setup: Lines of sh to run before the workers start: ``[". venv/bin/activate", "cd data"]``.
        detach: Whether workers outlive the program: its next run finds them.
        idle_limit: Seconds without a client after which workers end; 0 is no limit.
        start_timeout: Seconds within which all workers must run.

    Raises:
        FileNotFoundError: There is no such `hostfile`.
        TypeError: Hosts or options are no lists of strings.
        ValueError: A name, a limit or the transport makes no sense.
    """

    _LIVE = (*WorkersJob._LIVE, "_watches", "_watched", "_reach", "_sessions", "_unkept")
    _watches: tuple[WorkerWatch, ...] = ()
    _watched: tuple[Worker, ...] = ()
    _reach: Reach | None = None
    _sessions: tuple[Session, ...] = ()
    # those of them that have not been told to outlive the program, which happens once
    _unkept: tuple[Session, ...] = ()

    def __init__(
        self,
        python_exe: str | None = None,
        ssh_args: Sequence[str] = (),
        monarch_port: int | None = None,
        transport: str | None = None,
        *,
        hosts: Mapping[str, Sequence[str]] | None = None,
        hostfile: str | os.PathLike[str] | None = None,
        setup: Sequence[str] = (),
        detach: bool = False,
        idle_limit: float = 3600.0,
        start_timeout: float = 120.0,
    ) -> None:
        if transport not in (None, *_TRANSPORTS):
            raise ValueError(
                f"transport is None for sockets that ssh forwards, or one of {_TRANSPORTS}; got"
                f" {transport!r}"
            )
        if monarch_port and transport is None:
            logger.warning(
                "monarch_port=%s has no effect: ssh forwards sockets, and no port is opened",
                monarch_port,
            )
        self._meshes: dict[str, int] = {}
        self._hosts: dict[str, list[str]] = {}
        self._described = _Described(
            python_exe or sys.executable,
            check_strings("ssh_args", ssh_args),
            monarch_port or 0,
            transport is not None,
            check_strings("setup", setup),
            detach,
            check_idle_limit(idle_limit),
        )
        self._start_timeout = start_timeout
        self._numbers: dict[HostId, int] = {}  # of workers
        # workers ever: a number is never used again, as what is left of its worker may go at any
        # time
        self._begun = 0
        self._workers: dict[int, Worker] = {}
        self._reports: dict[int, Report] = {}
        self._folder = ""
        self._machine = ""
        self._away: list[str] = []  # hosts that are other machines than this one, each of them once
        for name, members in (hosts or {}).items():
            self.add_mesh(name, members)
        if hostfile is not None:
            self.add_mesh("hosts", hostfile=hostfile)

    def add_mesh(
        self,
        name: str,
        hosts: Sequence[str] = (),
        *,
        hostfile: str | os.PathLike[str] | None = None,
        size: int | None = None,
    ) -> None:
        """Add a mesh.

        Args:
            name: Its name.
            hosts: Its hosts, as ssh takes them: names of ``~/.ssh/config``, ``user@name``,
                ``ssh://name:port``. The same machine may be named again, and gets another worker.
            hostfile: File with further ones, one on a line; what follows on a line, such as
                ``slots=8``, has no effect.
            size: How many of them to use, the first ones; by default all. `scale` changes it.

        Raises:
            FileNotFoundError, TypeError, ValueError: As `SSHJob`; or there is such a mesh, there
                are fewer hosts than `size`, or the job runs.
        """
        check_mesh_names([name])
        if name in self._hosts or self.active:
            raise ValueError(
                f"mesh {name!r} can't be added: "
                + ("the job runs" if self.active else "there is one")
            )
        if hostfile is not None and not isinstance(hosts, str):
            listed, others = ssh_text.parse_hostfile(Path(hostfile).expanduser().read_text())
            if others:
                logger.warning(
                    "%s: %s has no effect; spawn_procs says how many processes", hostfile, others[0]
                )
            hosts = [*hosts, *listed]
        listed = ssh_text.check_hosts(name, hosts)
        if size is not None and not 1 <= size <= len(listed):
            raise ValueError(f"mesh {name!r}: of {len(listed)} hosts, {size} can't be used")
        self._hosts[name] = listed
        self._meshes[name] = len(listed) if size is None else size

    # the life of the job

    def _create(self, client_script: str | None) -> None:
        if client_script is not None:
            raise JobError(
                "SSHJob runs no scripts of its own; LocalJob().apply(client_script=...) does"
            )
        if not self._hosts:
            raise ValueError("a job needs at least one mesh of hosts, got none")
        assert self._apply_id is not None
        self._machine = os.uname().nodename
        if self._described.direct:
            self._secret_file = make_secret_file(self._home / "ssh" / self._apply_id)
        end = time.monotonic() + self._start_timeout
        waiting = Waiting("SSH hosts")
        try:
            self._start_workers(hosts_of(self._meshes), end, waiting)
        finally:
            waiting.end()

    def _connect(
        self, places: Sequence[Place], end: float, waiting: Waiting, each: float | None = None
    ) -> Reach:
        assert self._apply_id is not None
        if self._reach is None:
            _open.add(self)
            self._reach = Reach(
                self._apply_id, self._machines(), self._described.ssh_args, self._log_folder()
            )
        reach = self._reach
        self._folder = reach.folder
        reach.connect([place.host for place in places], end, waiting, each)
        self._away = reach.away
        logger.info(
            "connected to %d machines; what ssh says is in %s",
            len(reach.connections),
            self._log_folder(),
        )
        return reach

    def _start_workers(self, hosts: Sequence[HostId], end: float, waiting: Waiting) -> None:
        assert self._apply_id is not None
        first, self._begun = self._begun, self._begun + len(hosts)
        self._numbers |= {host: number for number, host in enumerate(hosts, first)}
        places = [place for place in self._places() if place.number >= first]
        reach = self._connect(places, end, waiting)
        described, sessions = self._described, []
        start = ssh_text.Start(
            self._apply_id, self._folder, self._remote_folders, described.python_exe, described.setup, described.idle_limit,
            described.detach, described.direct,
        )  # fmt: skip
        secret = read_secret_file(self._secret_file) if self._secret_file is not None else None
        for place in places:
            folder = ssh_text.folder_of(self._remote_folders, place.number)
            listen = f"ipc://{ssh_text.socket_in(folder)}"
            if described.direct:
                listen = (
                    f"tcp://{hostname_of(place.host, described.ssh_args)}:{described.monarch_port}"
                )
            spec = WorkerSpec(
                place.mesh,
                str(place.rank),
                listen,
                bind="*" if described.direct else "",
                report=ssh_text.REPORT,
                lifeline=ssh_text.LIFELINE,
            )
            log = self._log_folder() / f"{place.name}.log"
            command = ssh_text.worker(start._replace(folder=folder), spec)
            session = reach.connections[place.host].session(f"worker {place.name}", command, log)
            if secret is not None:
                session.write(secret.encode() + b"\n")
            sessions.append(session)
            self._sessions += (session,)
            self._unkept += (session,)
        if not described.direct:
            reach.forward(self._places(), self._remote_folders)
        reports = self._hear(sessions, parse_report, end, waiting, "workers run")
        for place, session, report in zip(places, sessions, reports, strict=True):
            address = f"ipc://{reach.path(place)}"
            self._reports[place.number] = report
            pid, name = session.process.pid, f"{place.name} on {place.host}"
            self._workers[place.number] = Worker(name, address, pid, session.log)

    def _hear(
        self,
        sessions: Sequence[Session],
        find: Callable[[str], T | None],
        end: float,
        waiting: Waiting,
        what: str,
    ) -> list[T]:
        return hear(sessions, find, self._described.python_exe, end, waiting, what)

    def _kept(self) -> None:
        if not self._described.detach or not self._unkept:
            return
        self._stop_watching()
        for session in self._unkept:
            session.write(KEEP)
        waiting = Waiting("SSH hosts")
        try:
            self._hear(self._unkept, str, time.monotonic() + _ANSWER, waiting, "workers detached")
            self._unkept = ()
        finally:
            waiting.end()

    def _addresses(self) -> Mapping[str, Sequence[str]]:
        self._check_here()
        living = self._living()
        ended = [place for place in self._places() if place.number not in living]
        if ended:
            raise JobError(
                f"{len(ended)} of {len(self._workers)} workers of this job have ended; kill() it,"
                f" and state() starts it anew. {ended[0].name} on {ended[0].host}:"
                f" {self._workers[ended[0].number].tail()}"
            )
        if self._sessions and (
            unwatched := [each for each in self._workers.values() if each not in self._watched]
        ):
            self._watches += (WorkerWatch(unwatched),)
            self._watched += tuple(unwatched)
        addresses = {(place.mesh, place.rank): self._address(place) for place in self._places()}
        return {
            mesh: [addresses[mesh, rank] for rank in range(size)]
            for mesh, size in self._meshes.items()
        }

    def _address(self, place: Place) -> str:
        """Where this program reaches a worker."""
        if self._described.direct:
            return self._reports[place.number].address
        worker = self._workers[place.number]
        return worker.address if self._reach is None else f"ipc://{self._reach.path(place)}"

    def _check_scalable(self, hosts: Sequence[HostId]) -> None:
        self._check_here()
        for mesh, rank in hosts:
            if rank >= (known := len(self._hosts[mesh])):
                raise JobError(
                    f"mesh {mesh!r} can't have {rank + 1} hosts, as {known} are named:"
                    f" {self._hosts[mesh]}"
                )
        if not self._described.detach and not self._sessions:
            raise JobError(
                f"{self!r}: its workers end with the program that has started them, and only that"
                " can scale it; with detach=True any can"
            )

    def _add_hosts(self, hosts: Sequence[HostId]) -> None:
        before = dict(self._numbers), self._sessions, self._unkept
        waiting = Waiting("SSH hosts")
        try:
            self._start_workers(sorted(hosts), time.monotonic() + self._start_timeout, waiting)
        except BaseException:
            for session in self._sessions[len(before[1]) :]:
                session.wait(_END)
            self._numbers, self._sessions, self._unkept = before
            raise
        finally:
            self._forget_workers()
            waiting.end()

    def _remove_hosts(self, hosts: Sequence[HostId]) -> None:
        assert self._apply_id is not None
        for place in self._places():
            if (place.mesh, place.rank) in hosts and self._reach is not None:
                pid = self._reports[place.number].pid
                if self._reach.lasts([place.host]):  # it has been shut down, unless it hangs
                    self._reach.connections[place.host].run(
                        ssh_text.killing([pid], self._apply_id), _ANSWER
                    )
                self._numbers.pop((place.mesh, place.rank))
        self._forget_workers()

    def _forget_workers(self) -> None:
        """Of those that are none of the job any more."""
        for number in set(self._workers) - set(self._numbers.values()):
            del self._workers[number], self._reports[number]

    def _reported(self) -> Mapping[HostId, str]:
        if self._described.detach and self._places():
            reach = self._reach_again(_ANSWER)
            if not self._described.direct:
                reach.forward(self._places(), self._remote_folders)
        return {(place.mesh, place.rank): self._address(place) for place in self._places()}

    def _lost_hosts(self, reported: Mapping[HostId, str]) -> list[HostId]:
        living = self._living(_ANSWER)
        return [(place.mesh, place.rank) for place in self._places() if place.number not in living]

    def _reach_again(self, each: float | None = None) -> Reach:
        """The connections of this program to detached workers; with `each`, to the machines that
        answer.
        """
        places = self._places()
        if (
            self._reach is not None
            and self._reach.lasts(place.host for place in places)
            and each is not None
        ):
            return self._reach
        waiting = Waiting("SSH hosts")
        is_new = self._reach is None
        try:
            reach = self._connect(places, time.monotonic() + self._start_timeout, waiting, each)
            if not self._described.direct and each is None:
                reach.forward(places, self._remote_folders)
        except BaseException:
            if is_new:
                self._let_go()
            raise
        finally:
            waiting.end()
        return reach

    def _living(self, each: float | None = None) -> set[int]:
        """The numbers of the workers that live; with `each`, their machines are asked, and on those
        that don't answer none does.
        """
        if not self._workers or self._apply_id is None:
            return set()
        if self._described.detach:
            living, reach = set(self._workers), self._reach_again(each)
        else:
            living = {
                number
                for number, it in self._workers.items()
                if processes.is_tagged(it.pid, self._apply_id)
            }
            if each is None or self._reach is None:
                return living
            # an ssh ends some time after its worker, of whose end the program has been told
            reach = self._reach
        found = set()
        for host, connection in reach.connections.items():
            pids = {
                self._reports[place.number].pid: place.number
                for place in self._places()
                if place.host == host
            }
            found |= {
                pids[pid]
                for pid in connection.living(pids, self._apply_id, _ANSWER, each is not None)
            }
        return found & living

    def can_run(self, spec: JobTrait) -> bool:
        """Check whether `spec` describes the same workers, and all of them live."""
        return self._same_spec(spec) and len(self._living()) == len(self._places())

    def _same_spec(self, spec: JobTrait) -> bool:
        if type(spec) is not type(self) or self._is_elsewhere():
            return False
        return (self._hosts, self._described) == (
            spec._hosts,
            spec._described,
        ) and self._same_meshes(spec)

    def _is_running(self) -> bool:
        return self._is_elsewhere() or bool(self._living())

    def _is_elsewhere(self) -> bool:
        """Return whether the connections are those of another machine that shares the folder of the
        file.
        """
        return not self._described.detach and self._machine not in ("", os.uname().nodename)

    def _check_here(self) -> None:
        if self._is_elsewhere():
            raise JobError(f"{self!r}: its workers can be reached, and ended, from there only")

    def _kill(self) -> None:
        self._check_here()
        self._stop_watching()
        for worker in self._workers.values():
            with suppress(FileNotFoundError):
                worker.goodbye.touch()  # for other programs that watch it
        failed: Mapping[str, JobError] = {}
        if (self._workers or self._sessions) and self._apply_id is not None:
            failed = self._end_workers(self._apply_id)
        self._let_go()
        if self._apply_id is not None:
            processes.end(self._apply_id)  # also the connections of other programs
            for number in range(self._begun):  # those that were here, and had to be killed
                shutil.rmtree(ssh_text.folder_of(self._remote_folders, number), ignore_errors=True)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        for error in failed.values():
            logger.warning(
                "workers may be left, until their connection or idle_limit ends them: %s", error
            )
        if failed and self._described.detach:
            raise JobError(
                f"{self!r}: workers on {', '.join(failed)} may be left, all others have ended."
                f" kill() again ends those once their host answers, and {self._idle_end()}."
                f" {next(iter(failed.values()))}"
            )
        if self._secret_file is not None:
            shutil.rmtree(self._secret_file.parent, ignore_errors=True)
        self._numbers, self._workers, self._reports = {}, {}, {}
        self._secret_file, self._machine, self._folder = None, "", ""

    def _stop_watching(self) -> None:
        for watch in self._watches:
            watch.stop()
        self._watches, self._watched = (), ()

    def _idle_end(self) -> str:
        limit = self._described.idle_limit
        return (
            f"they end by themselves after {limit:g} s without a client (idle_limit)"
            if limit
            else "nothing else does"
        )

    def _end_workers(self, apply_id: str) -> Mapping[str, JobError]:
        """End what runs elsewhere; return why that is not sure, by host."""
        reached, failed = self._connections()
        script = ssh_text.ending(
            apply_id, self._folder, self._remote_folders, processes.GRACE, _ANSWER / 3
        )
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ends = {
                host: pool.submit(reached[host].run, script, _ANSWER)
                for host in self._away
                if host in reached
            }
        for host, ended in ends.items():
            try:
                ended.result()
            except JobError as error:
                failed[host] = error
        return failed

    def _connections(self) -> tuple[Mapping[str, Connection], dict[str, JobError]]:
        """Those that last, and what is wrong with others that should; both by host."""
        if self._described.detach:
            reach = self._reach_again(_ANSWER)
            return reach.connections, dict(reach.failed)
        found, failed = {}, {}
        for host, connection in connections(self._folder, self._machines(), os.environ).items():
            try:
                if host in self._away and connection.lives:
                    found[host] = connection
            except JobError as error:
                failed[host] = error
        return found, failed

    def _let_go(self) -> None:
        """Let go of what only this program has."""
        _open.discard(self)
        for session in self._sessions:
            session.hang_up()
        if self._reach is not None:
            self._reach.close()
        for session in self._sessions:
            session.wait(_END)
        self._sessions, self._unkept, self._reach = (), (), None

    def _places(self) -> list[Place]:
        """Where its workers are."""
        return [
            Place(number, mesh, rank, self._hosts[mesh][rank])
            for (mesh, rank), number in self._numbers.items()
        ]

    def _machines(self) -> list[str]:
        """All hosts that it may use."""
        return [*dict.fromkeys(host for hosts in self._hosts.values() for host in hosts)]

    @property
    def _remote_folders(self) -> str:
        return f"{FOLDER}{self._apply_id}"

    def _log_folder(self) -> Path:
        folder = self._folder_of_logs() / "workers"
        trusted.make_folder(folder)
        return folder

    def _cleanup_log_context(self) -> str:
        return (
            f"(on {', '.join(self._machines())}: processes with {processes.TAG}={self._apply_id})"
        )

    def __repr__(self) -> str:
        where = f" on machine {self._machine!r}" if self._is_elsewhere() else ""
        return f"SSHJob({self._hosts!r}{', detach=True' if self._described.detach else ''}){where}"
