"""`SSHJob`: workers on machines that ssh reaches. Programs make one, or load it with `job_load`.

`workers` starts, finds and ends the workers; `reach` connects to them without an open port.

The names of workers are paths in a folder that belongs to one program and is removed with it.
Another program that uses the same workers makes its own connections if they may outlive the first
program (`detach`); otherwise it uses the first one's.

These end the workers: `kill`; the end of the program or of the connection, as both close the stdin
of a worker; for detached workers, `idle_limit` seconds without a client. These end the wait for
them: their reports, the end of ssh, `start_timeout`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ... import _ours
from ...errors import JobError
from ..base import contract, processes
from ..base.launch import describe_status
from ..base.trait import JobTrait
from ..base.waiting import Waiting
from ..base.worker_spec import KEEP
from . import text as ssh_text
from .connection import hear
from .workers import ANSWER, END, SshDescription, SSHWorkers

_TRANSPORTS = ("tcp", "metatls", "metatls-hostname")
_BROKEN = 255  # the exit status of ssh itself
_FROM_THERE = "its workers can be reached, and ended, from there only"

logger = logging.getLogger("monarch.job")


class SSHJob(SSHWorkers):
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
            those who have the job's secret: for hosts that reach each other, and this machine
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
        super().__init__(
            SshDescription(
                contract.check_python(python_exe or sys.executable),
                contract.check_strings("ssh_args", ssh_args),
                monarch_port or 0,
                transport is not None,
                contract.check_strings("setup", setup),
                detach,
                contract.check_idle_limit(idle_limit),
            ),
            start_timeout,
        )
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
        self._check_new(name)
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
        self._refuse_script(client_script, "LocalJob().apply(client_script=...) does")
        if not self._hosts:
            raise ValueError("a job needs at least one mesh of hosts, got none")
        assert self._apply_id is not None
        self._machine = os.uname().nodename
        if self._described.direct:
            self._secret_file = contract.make_secret_file(self._home / "ssh" / self._apply_id)
        end = time.monotonic() + self._start_timeout
        with Waiting("SSH hosts") as waiting:
            self._start_workers(contract.hosts_of(self._meshes), end, waiting)

    def _kept(self) -> None:
        if not self._described.detach or not self._unkept:
            return
        self._stop_watching()
        for session in self._unkept:
            session.write(KEEP)
        with Waiting("SSH hosts") as waiting:
            end = time.monotonic() + ANSWER
            hear(self._unkept, str, self._described.python_exe, end, waiting, "workers detached")
            self._unkept = ()

    def _addresses(self) -> Mapping[str, Sequence[str]]:
        self._check_here(_FROM_THERE)
        living = self._living()
        ended = [place for place in self._places() if place.number not in living]
        if ended:
            raise JobError(
                f"{len(ended)} of {len(self._workers)} workers of this job have ended; kill() it,"
                f" and state() starts it anew. {ended[0].name} on {ended[0].host}:"
                f" {self._workers[ended[0].number].tail()}"
            )
        if self._sessions:
            self._watch(self._workers.values())
        return self._by_mesh(
            {(place.mesh, place.rank): self._address(place) for place in self._places()}
        )

    def _why_ended(self) -> str:
        living, told = self._living(), list[str]()
        statuses = {pid: status for each in self._watches for pid, status in each.ended.items()}
        for place in self._places():
            if place.number not in living:
                worker = self._workers[place.number]
                status, said = statuses.get(worker.pid), worker.tail().rpartition("| ")[2]
                how = "connection is broken"
                if status != _BROKEN:
                    how = f"worker{describe_status(status)}"
                told.append(f"ssh {place.host}: {place.name} has ended: its {how}: {said}")
        return "; ".join(told)

    def _check_scalable(self, hosts: Sequence[contract.HostId]) -> None:
        self._check_here(_FROM_THERE)
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

    def _add_hosts(self, hosts: Sequence[contract.HostId]) -> None:
        before = dict(self._numbers), self._sessions, self._unkept
        try:
            with Waiting("SSH hosts") as waiting:
                self._start_workers(sorted(hosts), time.monotonic() + self._start_timeout, waiting)
        except BaseException:
            for session in self._sessions[len(before[1]) :]:
                session.wait(END)
            self._numbers, self._sessions, self._unkept = before
            raise
        finally:
            self._forget_workers()

    def _remove_hosts(self, hosts: Sequence[contract.HostId]) -> None:
        assert self._apply_id is not None
        for place in self._places():
            if (place.mesh, place.rank) in hosts and self._reach is not None:
                pid = self._reports[place.number].pid
                if self._reach.lasts([place.host]):  # it has been shut down, unless it hangs
                    self._reach.connections[place.host].run(
                        ssh_text.killing([pid], self._apply_id), ANSWER
                    )
                self._numbers.pop((place.mesh, place.rank))
        self._forget_workers()

    def _reported(self) -> Mapping[contract.HostId, str]:
        if self._described.detach and self._places():
            reach = self._reach_again(ANSWER)
            if not self._described.direct:
                reach.forward(self._places(), self._remote_folders)
        return {(place.mesh, place.rank): self._address(place) for place in self._places()}

    def _lost_hosts(self, reported: Mapping[contract.HostId, str]) -> list[contract.HostId]:
        living = self._living(ANSWER)
        return [(place.mesh, place.rank) for place in self._places() if place.number not in living]

    def can_run(self, spec: JobTrait) -> bool:
        """Check whether `spec` describes the same workers, and all of them live."""
        return self._same_spec(spec) and len(self._living()) == len(self._places())

    def _description(self) -> object:
        return self._hosts, self._described

    def _is_running(self) -> bool:
        return self._is_elsewhere() or bool(self._living())

    def _is_elsewhere(self) -> bool:
        return not self._described.detach and super()._is_elsewhere()

    def _kill(self) -> None:
        self._check_here(_FROM_THERE)
        self._stop_watching()
        for worker in self._workers.values():
            with suppress(FileNotFoundError):
                _ours.touch(worker.goodbye)  # for other programs that watch it
        failed: Mapping[str, JobError] = {}
        if (self._workers or self._sessions) and self._apply_id is not None:
            failed = self._end_workers(self._apply_id)
        self._let_go()
        if self._apply_id is not None:
            processes.end(self._apply_id)  # also the connections of other programs
            for number in range(self._begun):  # those that were here, and had to be killed
                _ours.remove_tree(ssh_text.folder_of(self._remote_folders, number))
        if self._folder:
            _ours.remove_tree(ssh_text.of_user(self._folder, os.geteuid()))
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
            _ours.remove_tree(self._secret_file.parent)
        self._numbers, self._workers, self._reports = {}, {}, {}
        self._secret_file, self._machine, self._folder = None, "", ""

    def _idle_end(self) -> str:
        limit = self._described.idle_limit
        if limit:
            return f"they end by themselves after {limit:g} s without a client (idle_limit)"
        return "nothing else does"

    def _cleanup_log_context(self) -> str:
        return (
            f"(on {', '.join(self._machines())}: processes with {processes.TAG}={self._apply_id})"
        )

    def __repr__(self) -> str:
        where = f" on machine {self._machine!r}" if self._is_elsewhere() else ""
        return f"SSHJob({self._hosts!r}{', detach=True' if self._described.detach else ''}){where}"
