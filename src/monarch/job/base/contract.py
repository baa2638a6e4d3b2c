"""The contract between a job and its workers: rank, address, lifeline.

It is the same wherever a launcher starts them.

A launcher (a fork, srun, ssh, a pod) starts `worker_command(spec)` once for each host. The worker

    listens    on a free port, unless it is told one, at an address that others can dial
    reports    which host of which mesh it is, and where it listens: as a file in a folder that the job sees too, or as a
               line on its lifeline
    ends       in order, when a client shuts the host down, or no client has been attached for the idle limit;
               at once, with all that it runs, when its lifeline breaks or its launcher ends it;
               where a scheduler warns first, by SIGTERM, the worker leaves a file, and goes on
               while a client is attached

So the job needs to know no address before, and nothing stays when a client, a launcher or a login
node dies. The right to attach is proved by a secret that the job has made (`make_secret_file`): a
worker on TCP takes it from ``MONARCH_SECRET_FILE``. Before the first pickle, both sides of a link
compare their releases, and say which side to upgrade.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ... import _ours
from ..._arguments import whole
from ..._new_python import main_of
from ..._patterns.attaching import after_the_end, socket_path, why_hosts_end
from ...actor import attach_to_workers
from ...errors import JobError
from ...trust import read_secret_file, write_secret_file
from .cache import CacheFile
from .state import JobState, check_mesh_names
from .trait import DEFAULT_JOB_PATH, JobTrait
from .worker_spec import WorkerReport, WorkerSpec

IDLE_LIMIT = "MONARCH_WORKER_IDLE_LIMIT"
"""Environment variable: the configuration key `worker_idle_limit` of a worker."""

WARNS = "MONARCH_SIGTERM_WARNS"
"""Environment variable: the configuration key `sigterm_warns` of a worker that has a `warning` to
give.
"""

SECRET_FILE = "MONARCH_SECRET_FILE"
"""Environment variable: the file with the secret of a worker, and of what runs there."""

_REACHABLE = 2.0  # seconds in which a worker must accept a connection
_TRIED_AT_ONCE = 64
# seconds that hosts get to end in order, before their machines are given back
_SHUTDOWN_BOUND = 20.0
# seconds that a program waits to be told why its hosts have ended, and between two questions
_TOLD_WITHIN, _LOOK_AGAIN = 5.0, 0.3

logger = logging.getLogger("monarch.job")
_told = logging.getLogger("monarch.supervision")


def worker_command(spec: WorkerSpec, python: Sequence[str] = (sys.executable,)) -> list[str]:
    """Return the command of a worker.

    Args:
        spec: What to tell it.
        python: The interpreter and its options.
    """
    return [*python, "-c", main_of("monarch.job.worker_main"), json.dumps(spec._asdict())]


def parse_report(line: str) -> WorkerReport | None:
    """The report in a line that a worker may have written; None if there is none."""
    try:
        return WorkerReport(**json.loads(line))
    except (ValueError, TypeError):
        return None


def read_reports(folder: Path) -> Iterator[WorkerReport]:
    """The reports in a folder; nothing if there is none."""
    try:
        # reads it anew on network file systems too, as looking for one file does not
        with _ours.opened(folder) as opened:
            for name in opened.names(r"[^.].*"):
                yield WorkerReport.decode(opened.read(name))
    except FileNotFoundError:
        return


def unreachable(addresses: Iterable[str]) -> set[str]:
    """Return those of the ``ipc://`` and ``tcp://`` workers that do not accept a connection."""
    from concurrent.futures import ThreadPoolExecutor

    tried = list(addresses)
    with ThreadPoolExecutor(_TRIED_AT_ONCE) as pool:
        return {
            address
            for address, why in zip(tried, pool.map(why_unreachable, tried), strict=True)
            if why
        }


def why_unreachable(address: str, seconds: float = _REACHABLE) -> str:
    """Return why an ``ipc://`` or ``tcp://`` worker accepts no connection; empty if it does."""
    scheme, _, where = address.partition("://")
    host, _, port = where.rpartition(":")
    try:
        if scheme == "ipc":
            with socket.socket(socket.AF_UNIX) as sock:
                sock.settimeout(seconds)
                sock.connect(socket_path(address))
        else:
            socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__
    return ""


def first_line(error: Exception) -> str:
    """Return an error of a library in one line."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['it said nothing'])[0]}"


def make_secret_file(folder: Path) -> Path:
    """Make a folder for a job, for its user alone, with a new secret in it.

    Return the file of the secret.
    """
    with _ours.opened(folder, make=True) as opened:
        write_secret_file(f"{opened.way}/secret")
    return folder / "secret"


def check_meshes(kind: str, meshes: Mapping[str, int]) -> dict[str, int]:
    """Check the names of the meshes of a job, and how many hosts each has.

    Raises:
        TypeError: It is no mapping, or a number is none.
        ValueError: There is none, a number is below 1, or a name could not be read as an attribute
            of the state.
    """
    if not isinstance(meshes, Mapping):
        raise TypeError(
            f'{kind} takes names and numbers of hosts, such as {{"trainers": 2}}; got {meshes!r}'
        )
    check_mesh_names(meshes)
    if not meshes:
        raise ValueError("a job needs at least one mesh of hosts, got none")
    for name, size in meshes.items():
        check_size(name, size)
    return dict(meshes)


def check_size(name: str, size: int) -> None:
    """Check how many hosts a mesh has. For errors see `check_meshes`."""
    whole(size, f"mesh {name!r}: the number of hosts")


def check_idle_limit(seconds: float) -> float:
    """Check after how many seconds without a client workers end.

    Another value is a ValueError.
    """
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"idle_limit is a number of seconds, and 0 for no limit; got {seconds!r}")
    return seconds


def check_env(env: Mapping[str, str] | None) -> dict[str, str]:
    """Check the environment variables of workers.

    A TypeError if a name or a value is no string, a ValueError if the system takes none such.
    """
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"env maps names to strings, got {name!r}: {value!r}")
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"env: no variable can be {name!r}: {value!r}")
    return dict(env or {})


def check_python(path: str) -> str:
    """Check the interpreter of workers, which is a word of commands and scripts.

    A ValueError if it is several lines, or would be taken for an option.
    """
    if not re.fullmatch(r"[^-\x00-\x1f\x7f][^\x00-\x1f\x7f]*", path):
        raise ValueError(f"python_exe is the path of an interpreter, in one line; got {path!r}")
    return path


def check_strings(name: str, given: Sequence[str]) -> tuple[str, ...]:
    """Check an argument that is a list of strings; a TypeError if it is none."""
    if isinstance(given, str) or not all(isinstance(each, str) for each in given):
        raise TypeError(f"{name} is a list of strings, got {given!r}")
    return tuple(given)


HostId = tuple[str, int]
"""A host of a job: its mesh, and its rank there."""


def hosts_of(meshes: Mapping[str, int]) -> list[HostId]:
    """Return the hosts of meshes, of which each has a size."""
    return [(mesh, rank) for mesh, size in meshes.items() for rank in range(size)]


class WorkersJob(JobTrait):
    """Base of the jobs that start a worker for each host.

    A kind says how: `_create` starts them, `_addresses` waits for their reports. A kind that can be
    scaled also has `_add_hosts`, `_remove_hosts` and `_reported`. A kind with workers that would
    outlive the program calls `_end_with_program` when it has started them, and `_outlive_program`
    when it ends them.

    Args:
        meshes: Name to number of hosts.
    """

    _LIVE = (*JobTrait._LIVE, "_ends_with_program")
    _ends_with_program = False
    _secret_file: Path | None = None
    # as they were before `scale`; None if they are as described
    _described_meshes: Mapping[str, int] | None = None

    def __init__(self, meshes: Mapping[str, int]) -> None:
        self._meshes = check_meshes(type(self).__name__, meshes)

    def _check_new(self, name: str) -> None:
        """Raise if no mesh of this name can be added."""
        check_mesh_names([name])
        if name in self._meshes or self.active:
            why = "the job runs" if self.active else "there is one"
            raise ValueError(f"mesh {name!r} can't be added: {why}")

    def _refuse_script(self, client_script: str | None, otherwise: str) -> None:
        """Raise if a script is given, and say what runs it."""
        if client_script is not None:
            raise JobError(f"{type(self).__name__} runs no scripts of its own; {otherwise}")

    def _by_mesh(self, addresses: Mapping[HostId, str]) -> Mapping[str, Sequence[str]]:
        """Addresses of the hosts of each mesh, in the order of their ranks."""
        return {
            mesh: [addresses[mesh, rank] for rank in range(size)]
            for mesh, size in self._meshes.items()
        }

    def _addresses(self) -> Mapping[str, Sequence[str]]:
        """Return where the workers of each mesh listen, in the order of their ranks.

        Wait for those that start.

        Raises:
            JobError: One has ended, or will not start.
        """
        raise NotImplementedError

    def _why_ended(self) -> str:
        """Explain why hosts of it have ended, as the scheduler tells it; empty if it doesn't."""
        return ""

    def _told_end(self) -> str:
        """As `_why_ended`; a scheduler may learn of the end a moment after the program."""
        deadline = time.monotonic() + _TOLD_WITHIN
        while not (told := self._why_ended()) and time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN)
        return told

    def _check_scalable(self, hosts: Sequence[HostId]) -> None:
        """Raise a JobError if these hosts can't be added, replaced or removed.

        It is called before anything changes.
        """

    def _add_hosts(self, hosts: Sequence[HostId]) -> None:
        """Start workers of further hosts, or others for lost ones, and don't wait for machines.

        If it raises, none may be left.
        """
        raise NotImplementedError

    def _remove_hosts(self, hosts: Sequence[HostId]) -> None:
        """End workers and give their machines back.

        `_meshes` has the new sizes. Those that could be reached have ended already, in order. If it
        raises, it is called again for the same hosts when they are to go once more.
        """
        raise NotImplementedError

    def _reported(self) -> Mapping[HostId, str]:
        """Return where the workers listen that have said so; without waiting."""
        raise JobError(f"{self!r} has the hosts that it has: a job of this kind can't be scaled")

    def _lost_hosts(self, reported: Mapping[HostId, str]) -> list[HostId]:
        """Find the hosts that are lost, by what `_reported` has just said.

        By default, those are the hosts with workers that can't be reached.
        """
        lost = unreachable(reported.values())
        return sorted(host for host, address in reported.items() if address in lost)

    def _scale(self, meshes: Mapping[str, int], replace_lost: bool) -> None:
        for name, size in meshes.items():
            if name not in self._meshes:
                raise ValueError(
                    f"there is no mesh {name!r} in this job; it has: {', '.join(self._meshes)}"
                )
            check_size(name, size)
        # raises for a kind that can't be scaled, before anything has changed
        reported = self._reported()
        old, new = self._meshes, {**self._meshes, **meshes}
        lost = [
            (mesh, rank)
            for mesh, rank in (self._lost_hosts(reported) if replace_lost else ())
            if rank < new[mesh]
        ]
        further = [(mesh, rank) for mesh, size in new.items() for rank in range(old[mesh], size)]
        gone = [(mesh, rank) for mesh, size in old.items() for rank in range(new[mesh], size)]
        self._check_scalable([*lost, *further, *gone])
        if lost or further:
            self._add_hosts([*lost, *further])
        self._described_meshes = self._described_meshes or old
        self._meshes = new
        if gone:
            try:
                self._shut_down([reported[host] for host in gone if host in reported])
                self._remove_hosts(gone)
            except BaseException:  # they still belong to the job, and can be removed again
                self._meshes = {mesh: max(size, new[mesh]) for mesh, size in old.items()}
                raise
        for mesh, rank in lost:
            _told.warning(
                "host %d of mesh %r was lost; another takes its place in the next state()",
                rank,
                mesh,
            )

    def _shut_down(self, addresses: Collection[str]) -> None:
        """End hosts in order, as far as they can be reached."""
        if reached := sorted(set(addresses) - unreachable(addresses)):
            self._prepare_client_gateway()
            mesh = attach_to_workers(ca=None, workers=reached, secret=self._secret())
            try:
                mesh.shutdown().get(timeout=_SHUTDOWN_BOUND)
            except Exception as error:
                logger.info("hosts did not end in order: %s", error)

    def _description(self) -> object:
        """Return the user's description, beside the meshes. By default no two are the same."""
        return object()

    def _is_elsewhere(self) -> bool:
        """Return whether the job is on another machine that shares the folder of the file."""
        return False

    def _same_spec(self, spec: JobTrait) -> bool:
        """Compare descriptions; meshes may be as first described or as scaled."""
        if type(spec) is not type(self) or self._description() != spec._description():
            return False
        return spec._meshes in (self._meshes, self._described_meshes) and not self._is_elsewhere()

    def _start(self, client_script: str | None, cache: CacheFile | None = None) -> None:
        self._meshes, self._described_meshes = dict(self._described_meshes or self._meshes), None
        super()._start(client_script, cache)

    def _end_with_program(self) -> None:
        """Have the job end with this program, unless it is saved or will be.

        No other program could find it.
        """
        if self._cache is None:
            self._ends_with_program = True
            after_the_end.append(self._program_ends)

    def _outlive_program(self) -> None:
        self._ends_with_program = False
        if self._program_ends in after_the_end:
            after_the_end.remove(self._program_ends)

    def _kept(self) -> None:
        self._outlive_program()

    def _program_ends(self) -> None:
        if self._ends_with_program:
            self._abandon()

    @property
    def _home(self) -> Path:
        """The folder of the file that the job is saved to.

        A kind of job may have a folder of its own.
        """
        return (
            Path(DEFAULT_JOB_PATH).absolute() if self._cache is None else self._cache.path
        ).parent

    def _secret(self) -> str | None:
        try:
            return None if self._secret_file is None else read_secret_file(self._secret_file)
        except ValueError as error:
            raise JobError(f"{self!r}: {error}") from error

    def _state(self) -> JobState:
        addresses, secret = self._addresses(), self._secret()
        attached = {
            mesh: attach_to_workers(ca=None, workers=addresses[mesh], name=mesh, secret=secret)
            for mesh in self._meshes
        }
        if self._told_end not in why_hosts_end and type(self)._why_ended != WorkersJob._why_ended:
            why_hosts_end.append(self._told_end)
        return JobState(attached)
