"""The telemetry of a job.

It is switched on for actors spawned later; other programs find the processes to ask.

clients/<pid>  in the folder of a job's logs: a program that uses the job, until its end; it has the name of its host
run.duckdb     there: the file of its last run
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ... import _ours, config, why
from ... import telemetry as plane
from ...actor import this_host
from ...errors import JobError
from ...programs import Program, connect, find
from .features import TelemetryConfig

if TYPE_CHECKING:
    from ...telemetry import Profile as Profile
    from ...telemetry import QueryEngineClient as QueryEngineClient

_CLIENTS, _RUN = "clients", "run.duckdb"
_BRIEFLY = 0.25  # seconds between two looks at the end: the program may be about to end

_looks_on = False
_mounts = True


def look_on(mounts: bool = False) -> None:
    """Mark this program as one that only looks at jobs, or serves lookers.

    Others do not ask it, and it is no run of a job.

    Args:
        mounts: It runs something on the hosts, for which it mounts what the job asks for.
    """
    global _looks_on, _mounts
    _looks_on, _mounts = True, mounts


def looks_on() -> bool:
    """Return whether `look_on` was called."""
    return _looks_on


def mounts() -> bool:
    """Return whether this program mounts what its jobs ask for."""
    return _mounts


def begin(folder: Path, wanted: TelemetryConfig, job: str) -> QueryEngineClient:
    """Have processes that are spawned from now on remember messages, and keep the run's file.

    This program is recorded as one that uses the job.

    Args:
        folder: Of the logs of the job.
        wanted: How.
        job: The job, described for people.
    """
    if _looks_on:
        return plane.QueryEngineClient()
    if config.value("telemetry") == "off":
        config.configure(telemetry="sampled")
    clients = folder / _CLIENTS
    with _ours.opened(clients, make=True) as opened:
        name = str(os.getpid())
        if opened.status(name) is None:
            atexit.register(_forget, clients)
        opened.replace(name, this_host()._hosts[0].encode())
    # here `why.why` imports what judges: jobs without telemetry need none of it, at exit it is late
    plane.keep_run(run_of(folder), job, wanted.keep_run, partial(why.why, seconds=_BRIEFLY))
    return plane.QueryEngineClient()


def end(folder: Path) -> None:
    """This program is about to end the job."""
    note = folder / _CLIENTS / str(os.getpid())
    if note.exists():  # it has used the telemetry of the job
        plane.finish_run(run_of(folder))
        _forget(note.parent)


def profile(
    ready: Callable[[Profile], object] | None, seconds: float | None, torch: bool
) -> Profile:
    """A profile of this program; see `JobTrait.profile`."""
    made = plane.Profile(ready, torch)
    if seconds is not None:
        made.record(seconds)
    return made


def _forget(clients: Path) -> None:
    """Forget this program at its end.

    It may be a fork of the one that has asked for this.
    """
    with suppress(OSError), _ours.opened(clients) as opened:
        opened.remove(str(os.getpid()))


def client_of(folder: Path, job: str, here: bool) -> QueryEngineClient:
    """A client for a program that uses the job.

    Args:
        folder: Of the logs of the job.
        job: The job, described for people.
        here: Whether that program is this one; else another one on this machine is looked for.

    Raises:
        JobError: There is none on this machine, or it does not answer.
    """
    if here:
        return plane.QueryEngineClient()
    program = program_of(folder)
    if program is None:
        last = f"; its last run is kept in {run_of(folder)}" if run_of(folder).exists() else ""
        raise JobError(
            f"no program on this machine uses {job} now, so there is nothing to ask{last}"
        )
    try:
        return plane.QueryEngineClient(connect(program))
    except (ConnectionError, RuntimeError) as error:
        raise JobError(f"the telemetry of {job} could not be reached: {error}") from error


def program_of(folder: Path) -> Program | None:
    """Return the program on this machine that uses the job with logs in that folder."""
    for program in find():
        with suppress(FileNotFoundError), _ours.opened(folder / _CLIENTS) as clients:
            if clients.read(str(program.pid)) == program.host.encode():
                return program
    return None


def uses(folder: Path, pid: str) -> bool:
    """Return whether the program with that process id uses the job with logs in that folder."""
    return (folder / _CLIENTS / pid).exists()


def run_of(folder: Path) -> Path:
    """The file that the last run of that job leaves."""
    return folder / _RUN
