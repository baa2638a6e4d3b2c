"""How one program reaches the machines of a job, and their workers each other.

No worker opens a port. Each listens on a Unix socket, in a folder for its user alone, and ssh
forwards it: to a path in a folder of this machine; and from the same path on every other machine,
in a folder that is made for this, back to that. So a path means the same worker everywhere, which
is what an address has to do, and ssh encrypts all that passes between machines. The folder's name
ends with the number of its user, ``%U`` in addresses: hosts of several users may be on one machine.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from ...errors import JobError
from ..base.processes import TAG
from ..base.waiting import Waiting
from . import text as ssh_text
from .connection import AT_ONCE, SshCommand, SshConnection, hear

FOLDER = "/tmp/monarch_ssh_"
"""How the names of folders begin, here and there: a socket's path has to be short, and TMPDIR may
be another one there.
"""

_LONGEST_HOST = 40  # characters of it in a path, which may have 107
_END = 5.0  # seconds in which ssh has to end


class WorkerPlace(NamedTuple):
    """A worker.

    Its `number` is its own in the whole life of the job, also if another has its place later.
    """

    number: int
    mesh: str
    rank: int
    host: str

    @property
    def name(self) -> str:
        return f"{self.mesh}_{self.rank}"


class Reach:
    """Connections to the machines of some workers; they last no longer than this program.

    Args:
        job: Id of the job.
        hosts: All machines that the job may use, each once, in an order that does not change.
        ssh_args: Further options of ssh.
        logs: Folder for what ssh says.
        left: As `keeper`'s `workers`.

    Attributes:
        folder: How the name of the folder begins where the sockets of workers are for this program,
            here and on each machine; the number of the user there follows.
        away: The hosts that have no part of this machine, nor of another one of them, each once,
            and the number of the user there.
        connections: Of the hosts that were connected, by host.
        failed: The trouble of each host that was left out, by host.
    """

    def __init__(
        self, job: str, hosts: Sequence[str], ssh_args: Sequence[str], logs: Path, left: str = ""
    ) -> None:
        self.folder = f"{FOLDER}{secrets.token_hex(4)}"
        self.away: dict[str, str] = {}
        self._ssh_args = ssh_args
        self._logs = logs
        self._left = left
        self._env = {**os.environ, TAG: job}  # by which `kill` finds what runs here
        self._every = connections(self.folder, hosts, self._env)
        self.connections: dict[str, SshConnection] = {}
        self.failed: dict[str, JobError] = {}
        self._keeper: SshCommand | None = None
        self._masters: dict[str, SshCommand] = {}
        # workers with a path that leads to them, here and there, by the host of the connection
        self._brought: dict[str, set[WorkerPlace]] = {}
        self._sent: dict[str, set[WorkerPlace]] = {}

    def lasts(self, hosts: Iterable[str]) -> bool:
        """Return whether there are lasting connections to some hosts."""
        masters = [self._masters.get(host) for host in hosts]
        return all(master is not None and master.process.poll() is None for master in masters)

    def connect(
        self, hosts: Iterable[str], end: float, waiting: Waiting, each: float | None = None
    ) -> None:
        """Connect to machines, where there is no connection that lasts.

        Args:
            hosts: Which.
            end: When to give up, by the monotonic clock.
            waiting: Tells people.
            each: None if all are needed; else the seconds after which one that does not answer is
                left out (`failed`).

        Raises:
            JobError: One that is needed can't be connected; the message names it, and has the last
                words of ssh.
        """
        if self._keeper is None:
            script = ssh_text.keeper(self.folder, self._left, ssh_text.hang_up(self.folder))
            keep, log = ["sh", "-c", script], self._logs / "ssh.log"
            self._keeper = SshCommand("this machine", keep, log, self._env)
            hear([self._keeper], _is_kept, "sh", end, waiting, "folders made")
        script = ssh_text.keeper(self.folder, self._left)
        every = [self._every[host] for host in dict.fromkeys(hosts) if not self.lasts([host])]
        for some in (every[start : start + AT_ONCE] for start in range(0, len(every), AT_ONCE)):
            masters = []
            limit = end if each is None else time.monotonic() + each
            for connection in some:
                log = self._logs / f"ssh_{_plain(connection.host)}.log"
                self._forget(connection.host)
                masters.append(
                    connection.start(self._ssh_args, script, log, limit - time.monotonic())
                )
                self._masters[connection.host] = masters[-1]
                self.connections[connection.host] = connection
            for together in [masters] if each is None else [[master] for master in masters]:
                try:
                    said = hear(together, _is_kept, "sh", limit, waiting, "connected")
                except JobError as error:
                    if each is None:
                        raise
                    (master,) = together
                    self._forget(master.host)
                    self.failed[master.host] = error
                    continue
                self.away |= {
                    master.host: user
                    for master, (where, user) in zip(together, said, strict=True)
                    if where == ssh_text.ELSEWHERE
                }

    def forward(self, places: Sequence[WorkerPlace], workers: str) -> None:
        """Bring the sockets of workers here, and then all of them to each machine without them.

        The other way round, a machine that shares this folder would forward a path to
        itself. Paths that lead somewhere already stay.

        Args:
            places: All workers.
            workers: How the names of their folders there begin (`text.folder_of`).

        Raises:
            JobError: A machine refuses it.
        """

        def bring(host: str) -> None:
            done = self._brought.setdefault(host, set())
            new = [place for place in places if place.host == host and place not in done]
            pairs = [
                (self.path(place), ssh_text.socket_in(ssh_text.folder_of(workers, place.number)))
                for place in new
            ]
            self.connections[host].forward(pairs, ())
            done.update(new)

        def send(host: str) -> None:
            done = self._sent.setdefault(host, set())
            new = [place for place in places if place not in done]
            pairs = [(self.path(place, self.away[host]), self.path(place)) for place in new]
            self.connections[host].forward((), pairs)
            done.update(new)

        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(bring, self.connections))
            list(pool.map(send, self.away))

    def _forget(self, host: str) -> None:
        """Clean up after a connection that has ended."""
        if host in self._masters:
            self._masters.pop(host).wait(_END)
        for place in self._brought.pop(host, ()):
            Path(self.path(place)).unlink(missing_ok=True)
        self._sent.pop(host, None)
        self.connections.pop(host, None)
        self.failed.pop(host, None)
        self.away.pop(host, None)

    def path(self, place: WorkerPlace, user: str = "") -> str:
        """The path of a worker's socket for this program, and a user there; by default, here.

        Errors show it, so it has the name of the host.
        """
        folder = ssh_text.of_user(self.folder, user or os.geteuid())
        return f"{folder}/{place.number}.{_plain(place.host)}"

    def close(self) -> None:
        """Let go of the machines: what runs there with a lifeline ends. The folders go with it."""
        sessions = [*self._masters.values(), *([] if self._keeper is None else [self._keeper])]
        for session in sessions:
            session.hang_up()
        end = time.monotonic() + _END
        for session in sessions:
            session.wait(end - time.monotonic())
        # should its keeper have been killed
        shutil.rmtree(ssh_text.of_user(self.folder, os.geteuid()), ignore_errors=True)


def connections(
    folder: str, hosts: Sequence[str], env: Mapping[str, str]
) -> dict[str, SshConnection]:
    """The connections that may have their sockets in a folder of this user, by host.

    They are of this program or another one.
    """
    return {
        host: SshConnection(host, f"{ssh_text.of_user(folder, os.geteuid())}/{number}.ssh", env)
        for number, host in enumerate(hosts)
    }


def _is_kept(line: str) -> tuple[str, str] | None:
    found = re.fullmatch(f"({ssh_text.HERE}|{ssh_text.ELSEWHERE}) ([0-9]+)", line)
    return None if found is None else (found[1], found[2])


def _plain(host: str) -> str:
    """A host as a part of a path."""
    return "".join(
        char if char.isascii() and (char.isalnum() or char in ".@_-") else "_" for char in host
    )[-_LONGEST_HOST:]
