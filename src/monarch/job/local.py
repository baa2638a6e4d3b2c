"""`LocalJob`: this machine as a job, with no workers to start.

In batch mode it is a script that goes on in a process of its own when the program that has
submitted it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from .._ours import NEW, opened
from ..actor import this_host
from .base import logs, processes
from .base.cache import CacheFile
from .base.state import JobState, check_mesh_names
from .base.trait import BATCH, BATCH_FILE, DEFAULT_JOB_PATH, JobTrait, in_batch


class LocalJob(JobTrait):
    """The machine of this program, under each of some names.

    There is nothing to start, to find again or to end.

    It neither reads nor writes a cache file, so it leaves alone a job that runs there.

    Args:
        hosts: Names for the host.

    Raises:
        TypeError: It is no list of names.
        ValueError: A name could not be read as an attribute of the state.
    """

    _saves_itself = False
    _is_all_here = True
    _LIVE = (*JobTrait._LIVE, "_process")
    _process: subprocess.Popen[bytes] | None = None

    def __init__(self, hosts: Sequence[str] = ("hosts",)) -> None:
        if isinstance(hosts, str):
            raise TypeError(f"LocalJob takes a list of names, such as ({hosts!r},); got {hosts!r}")
        check_mesh_names(hosts)
        self._hosts = tuple(hosts)
        self._runs_script = False

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The script that `apply` started.

        Raises:
            ValueError: This object started none.
        """
        if self._process is None:
            raise ValueError("this is no local batch job: apply(client_script=...) starts one")
        return self._process

    def _create(self, client_script: str | None) -> None:
        """Start the script, with its output in a folder of its own, without waiting for it."""
        if client_script is None:
            return
        if not Path(client_script).is_file():
            raise FileNotFoundError(
                f"client_script is a Python file; there is no {client_script!r} in {Path.cwd()}"
            )
        assert self._apply_id is not None
        self._runs_script = True
        folder = logs.folder_of(Path(DEFAULT_JOB_PATH), self._apply_id)
        saved = folder / "job.pkl"
        CacheFile(saved).write(BatchJob(self)._pickled())
        environment = {
            **os.environ,
            BATCH: "1",
            BATCH_FILE: str(saved),
            processes.TAG: self._apply_id,
        }
        with opened(folder, make=True) as own, ExitStack() as files:
            out, err = (
                files.enter_context(open(own.open(name, NEW), "wb"))
                for name in ("stdout.log", "stderr.log")
            )
            self._process = subprocess.Popen(
                [sys.executable, client_script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                start_new_session=True,
            )

    def _state(self) -> JobState:
        return JobState({name: this_host() for name in self._hosts})

    def can_run(self, spec: JobTrait) -> bool:
        """No: what runs here is this program's own."""
        return False

    def _kill(self) -> None:
        if self._runs_script and self._apply_id is not None:
            processes.end(self._apply_id)
        if self._process is not None:
            if self._process.poll() is None:  # just started: its environment could not be read yet
                self._process.kill()
            self._process.wait()
        self._runs_script = False

    def __repr__(self) -> str:
        return f"LocalJob({self._hosts!r})"


class BatchJob(JobTrait):
    """The job that a script belongs to.

    The script gets it in place of the job that it describes itself.

    Args:
        job: The job it is a part of.
    """

    def __init__(self, job: JobTrait) -> None:
        self._job = job
        self._status = "running"
        self._apply_id = job.apply_id

    def _create(self, client_script: str | None) -> None:
        raise AssertionError("a batch job is made by the job that it is a part of")

    def _state(self) -> JobState:
        return self._job._state()

    def can_run(self, spec: JobTrait) -> bool:
        """Return False: the processes here are this program's own.

        These are the hosts it was started for.

        Args:
            spec: See `JobTrait.can_run`.
        """
        return in_batch()

    def kill(self) -> None:
        """End the job and its script.

        Without effect within the script: the job ends when that does.
        """
        if not in_batch():
            super().kill()

    def _kill(self) -> None:
        self._job._kill()

    def _prepare_client_gateway(self) -> None:
        self._job._prepare_client_gateway()

    def __repr__(self) -> str:
        return f"BatchJob({self._job!r})"
