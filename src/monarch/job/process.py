"""Worker processes on this machine, as if each were a host of its own."""

from __future__ import annotations

import logging
import os
import signal
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from .. import _ours, config
from ..errors import JobError
from .base import launch, processes
from .base.contract import HostId, check_env, hosts_of
from .base.launch import WorkerProcess
from .base.trait import JobTrait
from .watch import WatchedWorkersJob

# bytes: with the names in it, it must fit into the 107 of a unix socket's address
_LONGEST_PARENT = 60

logger = logging.getLogger("monarch.job")

_unsaved: set[JobTrait] = set()
"""Jobs with workers that end with this program. Held here so that they live even if the program
keeps only their hosts.
"""


class ProcessJob(WatchedWorkersJob):
    """Hosts that are worker processes on this machine: a cluster to develop and test on.

    The workers outlive the program, and its next run finds them, if the job is saved: `state` does
    that unless it gets ``cached_path=None``. Otherwise they end with the program. Their own output
    is kept in ``logs/<apply_id>/workers`` beside the file (unsaved, until the job ends), and the
    end of it is shown when one dies.

    Args:
        meshes: Name to number of hosts.
        env: Environment variables for the workers, beside those of this program.

    Raises:
        TypeError: A number or a variable has the wrong type.
        ValueError: A number is below 1, or a name could not be read as an attribute of the state.
    """

    _is_all_here = True
    _LIVE = (*WatchedWorkersJob._LIVE, "_leashes")
    _leashes: tuple[socket.socket, ...] = ()

    def __init__(self, meshes: Mapping[str, int], env: Mapping[str, str] | None = None) -> None:
        super().__init__(meshes)
        self._env = check_env(env)
        self._workers: dict[str, dict[int, WorkerProcess]] = {}  # by mesh and rank
        self._begun = 0  # workers ever started, for a name of each socket
        self._folder: Path | None = None

    def _create(self, client_script: str | None) -> None:
        self._refuse_script(client_script, "LocalJob().apply(client_script=...) does")
        self._machine = os.uname().nodename
        _unsaved.add(self)
        self._folder = _make_folder()
        self._workers = {mesh: {} for mesh in self._meshes}
        self._add_hosts(hosts_of(self._meshes))

    def _check_scalable(self, hosts: Sequence[HostId]) -> None:
        self._check_here("only a program there can scale it")

    def _add_hosts(self, hosts: Sequence[HostId]) -> None:
        assert self._apply_id is not None
        assert self._folder is not None
        own = self._folder if self._cache is None else self._folder_of_logs() / "workers"
        _ours.make(own)
        logger.info("starting %d workers; their output is in %s", len(hosts), own)
        environment = {**os.environ, **self._env, processes.TAG: self._apply_id}
        started: list[tuple[str, int, WorkerProcess]] = []
        leashes: list[socket.socket] = []
        try:
            for mesh, rank in hosts:
                address = f"ipc://{self._folder}/{self._begun}"
                self._begun += 1
                worker, leash = launch.start(
                    mesh, rank, address, own / f"{mesh}_{rank}.log", environment
                )
                leashes.append(leash)
                started.append((mesh, rank, worker))
            workers = [worker for *_, worker in started]
            launch.wait_ready(workers, leashes, config.value("host_spawn_ready_timeout") or None)
        except BaseException:
            for *_, worker in started:
                self._end_worker(worker)  # at the end of its leash it would take the folder along
            for leash in leashes:
                leash.close()
            raise
        self._leashes += tuple(leashes)
        for mesh, rank, worker in started:
            self._workers[mesh][rank] = worker

    def _remove_hosts(self, hosts: Sequence[HostId]) -> None:
        for mesh, rank in hosts:
            worker = self._workers[mesh][rank]
            if self._lives(worker):
                # it has been shut down, unless it hangs
                processes.reap(worker.pid, processes.GRACE)
            self._end_worker(worker)
        for mesh, rank in hosts:
            del self._workers[mesh][rank]

    def _end_worker(self, worker: WorkerProcess) -> None:
        """End a worker that may have ended, or be about to, and with it what it runs."""
        if self._lives(worker):
            os.kill(worker.pid, signal.SIGKILL)
        processes.reap(worker.pid, processes.GRACE)

    def _lost_hosts(self, reported: Mapping[HostId, str]) -> list[HostId]:
        hosts = [(mesh, rank) for mesh in self._workers for rank in sorted(self._workers[mesh])]
        return [(mesh, rank) for mesh, rank in hosts if not self._lives(self._workers[mesh][rank])]

    def _reported(self) -> Mapping[HostId, str]:
        return {
            (mesh, rank): worker.address
            for mesh in self._workers
            for rank, worker in self._workers[mesh].items()
        }

    def _kept(self) -> None:
        _unsaved.discard(self)
        launch.let_go(self._leashes)
        self._leashes = ()

    def _addresses(self) -> Mapping[str, Sequence[str]]:
        self._check_here("its workers can be reached from there only")
        ended = [worker for worker in self._all_workers() if not self._lives(worker)]
        if ended:
            raise JobError(
                f"{len(ended)} of {len(self._all_workers())} workers of this job have ended;"
                " scale(replace_lost=True) replaces them, or kill() it, and state() starts it"
                f" anew. {ended[0].name}, process {ended[0].pid}: {ended[0].tail()}"
            )
        self._watch(self._all_workers())
        return self._by_mesh(self._reported())

    def can_run(self, spec: JobTrait) -> bool:
        """Check whether `spec` describes the same workers, and all of them live."""
        return (
            self._same_spec(spec)
            and bool(self._workers)
            and all(map(self._lives, self._all_workers()))
        )

    def _description(self) -> object:
        return self._env

    def _is_running(self) -> bool:
        return self._is_elsewhere() or any(map(self._lives, self._all_workers()))

    def _kill(self) -> None:
        self._check_here(
            "only a program there can end it. If there is no such machine any more, remove the file"
            " that keeps the job"
        )
        self._stop_watching()
        _unsaved.discard(self)
        for worker in self._all_workers():
            # a worker that ended by itself has taken the folder with it
            with suppress(FileNotFoundError):
                worker.goodbye.touch()  # for other programs that watch it
        for leash in self._leashes:
            leash.close()
        self._leashes = ()
        if self._apply_id is not None:
            processes.end(self._apply_id)
        # one that was in the last moments of its life had no mark any more
        for worker in self._all_workers():
            processes.reap(worker.pid, processes.GRACE)
        if self._folder is not None:
            _ours.remove_tree(self._folder)
        self._workers, self._folder, self._machine = {}, None, ""

    def _all_workers(self) -> list[WorkerProcess]:
        return [worker for workers in self._workers.values() for worker in workers.values()]

    def _lives(self, worker: WorkerProcess) -> bool:
        return processes.is_tagged(worker.pid, self._apply_id or "")

    def _cleanup_log_context(self) -> str:
        return f"(workers: {[worker.pid for worker in self._all_workers()]})"

    def __repr__(self) -> str:
        env = f", env=<{', '.join(self._env)}>" if self._env else ""  # the values may be secrets
        where = f" on machine {self._machine!r}" if self._is_elsewhere() else ""
        return f"ProcessJob({self._meshes!r}{env}){where}"


def _make_folder() -> Path:
    """Make a folder with a short path, for sockets."""
    folder = tempfile.gettempdir()
    short = folder if len(os.fsencode(folder)) < _LONGEST_PARENT else "/tmp"
    return Path(tempfile.mkdtemp(prefix="monarch_job_", dir=short))
