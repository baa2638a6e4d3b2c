"""The workers of an `SSHJob` on their machines: connections, start, life and end."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ... import _ours
from ...errors import JobError
from ...trust import read_secret_file
from ..base import processes
from ..base.contract import HostId, parse_report
from ..base.launch import WorkerProcess
from ..base.waiting import Waiting
from ..base.worker_spec import WorkerReport, WorkerSpec
from ..watch import WatchedWorkersJob
from . import text as ssh_text
from .connection import AT_ONCE, SshCommand, SshConnection, hear, hostname_of
from .reach import FOLDER, Reach, WorkerPlace, connections

END = 5.0  # seconds in which ssh has to end
ANSWER = 30.0  # seconds in which a machine that is connected runs a short command

logger = logging.getLogger("monarch.job")

_open: set[SSHWorkers] = set()
"""Jobs with connections that end with this program. Held here so that they live even if the program
keeps only their hosts.
"""


class SshDescription(NamedTuple):
    """The user's description, beside the meshes.

    Jobs with equal descriptions can take each other's place.
    """

    python_exe: str
    ssh_args: tuple[str, ...]
    monarch_port: int
    direct: bool
    setup: tuple[str, ...]
    detach: bool
    idle_limit: float


class SSHWorkers(WatchedWorkersJob):
    """The part of `SSHJob` that talks to machines.

    Args:
        described: The user's description.
        start_timeout: Seconds within which all workers must run.
    """

    _LIVE = (*WatchedWorkersJob._LIVE, "_reach", "_sessions", "_unkept")
    _reach: Reach | None = None
    _sessions: tuple[SshCommand, ...] = ()
    # those of them that have not been told to outlive the program, which happens once
    _unkept: tuple[SshCommand, ...] = ()

    def __init__(self, described: SshDescription, start_timeout: float) -> None:
        self._meshes: dict[str, int] = {}
        self._hosts: dict[str, list[str]] = {}
        self._described = described
        self._start_timeout = start_timeout
        self._numbers: dict[HostId, int] = {}  # of workers
        # workers ever started: numbers are not reused, as files of an earlier worker may be removed
        # at any time
        self._begun = 0
        self._workers: dict[int, WorkerProcess] = {}
        self._reports: dict[int, WorkerReport] = {}
        self._folder = ""
        # hosts that are other machines than this one, each of them once, and the user's number
        self._away: Mapping[str, str] = {}

    def _connect(
        self, places: Sequence[WorkerPlace], end: float, waiting: Waiting, each: float | None = None
    ) -> Reach:
        assert self._apply_id is not None
        if self._reach is None:
            _open.add(self)
            self._reach = Reach(
                self._apply_id, self._machines(), self._described.ssh_args, self._log_folder(),
                "" if self._described.detach else self._remote_folders,
            )  # fmt: skip
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
                place.mesh, str(place.rank), listen, bind="*" if described.direct else "",
                report=ssh_text.REPORT, lifeline=ssh_text.LIFELINE,
            )  # fmt: skip
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
        reports = hear(sessions, parse_report, start.python, end, waiting, "workers run")
        for place, session, report in zip(places, sessions, reports, strict=True):
            address = f"ipc://{reach.path(place, '%U')}"
            self._reports[place.number] = report
            pid, name = session.process.pid, f"{place.name} on {place.host}"
            self._workers[place.number] = WorkerProcess(name, address, pid, session.log)

    def _address(self, place: WorkerPlace) -> str:
        """The address at which this program reaches a worker."""
        if self._described.direct:
            return self._reports[place.number].address
        worker = self._workers[place.number]
        return worker.address if self._reach is None else f"ipc://{self._reach.path(place, '%U')}"

    def _forget_workers(self) -> None:
        """Forget the workers that are no longer of the job."""
        for number in set(self._workers) - set(self._numbers.values()):
            del self._workers[number], self._reports[number]

    def _reach_again(self, each: float | None = None) -> Reach:
        """The connections of this program to detached workers.

        With `each`, to the machines that answer.
        """
        places = self._places()
        if (
            self._reach is not None
            and self._reach.lasts(place.host for place in places)
            and each is not None
        ):
            return self._reach
        is_new = self._reach is None
        try:
            with Waiting("SSH hosts") as waiting:
                reach = self._connect(places, time.monotonic() + self._start_timeout, waiting, each)
                if not self._described.direct and each is None:
                    reach.forward(places, self._remote_folders)
        except BaseException:
            if is_new:
                self._let_go()
            raise
        return reach

    def _living(self, each: float | None = None) -> set[int]:
        """The numbers of the workers that live.

        With `each`, their machines are asked, and on those that don't answer none does.
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
            # an ssh process ends some time after its worker, and the worker's end is told to the
            # program first
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
                for pid in connection.living(pids, self._apply_id, ANSWER, each is not None)
            }
        return found & living

    def _end_workers(self, apply_id: str) -> Mapping[str, JobError]:
        """End what runs elsewhere; return why that is not sure, by host."""
        reached, failed = self._connections()
        script = ssh_text.ending(
            apply_id, self._folder, self._remote_folders, processes.GRACE, ANSWER / 3
        )
        with ThreadPoolExecutor(AT_ONCE) as pool:
            ends = {
                host: pool.submit(reached[host].run, script, ANSWER)
                for host in self._away
                if host in reached
            }
        for host, ended in ends.items():
            try:
                ended.result()
            except JobError as error:
                failed[host] = error
        return failed

    def _connections(self) -> tuple[Mapping[str, SshConnection], dict[str, JobError]]:
        """The connections that last, and the trouble of others that should; both by host."""
        if self._described.detach:
            reach = self._reach_again(ANSWER)
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
            session.wait(END)
        self._sessions, self._unkept, self._reach = (), (), None

    def _places(self) -> list[WorkerPlace]:
        """The places of its workers."""
        return [
            WorkerPlace(number, mesh, rank, self._hosts[mesh][rank])
            for (mesh, rank), number in self._numbers.items()
        ]

    def _machines(self) -> list[str]:
        """The hosts that the job may use."""
        return [*dict.fromkeys(host for hosts in self._hosts.values() for host in hosts)]

    @property
    def _remote_folders(self) -> str:
        return f"{FOLDER}{self._apply_id}"

    def _log_folder(self) -> Path:
        folder = self._folder_of_logs() / "workers"
        _ours.make(folder)
        return folder
