"""The overview of a job, for people: `monarch status`. It starts nothing, and keeps nothing alive.

What ends the waits: the answers; the loss of a host; the time limit that the caller gives.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..actor import HostMesh
from ..errors import MonarchError
from ..logs.remote import look_on
from ..programs import PATIENCE, DescribeHost, HostDescription, ask_agents
from .base import telemetry
from .base.trait import job_load


class HostRow(NamedTuple):
    """One host of a job.

    Attributes:
        mesh: Its mesh.
        host: Which of it.
        address: Where its worker listens.
        machine: Its name; empty where it does not answer.
        procs: Of all programs: name of the mesh to number.
        error: Why it does not answer; empty if it does.
    """

    mesh: str
    host: int
    address: str
    machine: str
    procs: Mapping[str, int]
    error: str


class Overview(NamedTuple):
    """A saved job.

    Attributes:
        job: As it was described.
        id: Its id.
        runs: Whether any of it runs, or waits for its hosts.
        hosts: Its hosts, as far as they can be reached.
        error: Why they can't; empty if they can.
        pending: Why it waits for its hosts; empty if they are there.
    """

    job: str
    id: str
    runs: bool
    hosts: list[HostRow]
    error: str
    pending: str = ""


def look_at(path: Path, limit: float) -> Overview:
    """Survey the job in a file; for the main thread.

    Args:
        path: The file.
        limit: Seconds for all of it: a job may be pending for days.

    Raises:
        JobError: The file can't be read, or is not safe to read.
        ValueError: The limit is not above 0.
    """
    if not limit > 0:
        raise ValueError(f"the limit is a number of seconds above 0, got {limit:g}")
    saved = job_load(path)
    found = Overview(repr(saved), saved.apply_id or "", saved.active, [], "")
    if not found.runs:
        return found
    look_on()
    telemetry.look_on()
    try:
        with within(limit):
            runs, pending = saved._progress()
            if not runs or pending:
                return found._replace(runs=runs, pending=pending)
            meshes = saved.state(path)._hosts
            return found._replace(
                hosts=[row for name, hosts in meshes.items() for row in _rows(name, hosts)]
            )
    except TimeIsUp:
        return found._replace(
            error=f"its hosts have not come up, or do not answer, within {limit:g} s"
        )
    except (MonarchError, RuntimeError, OSError) as error:
        return found._replace(error=str(error))


def addresses_of(hosts: HostMesh) -> list[str]:
    """The addresses of the workers of a mesh."""
    names = hosts._hosts
    return [names[rank] for rank in hosts._shape.ranks()]


def _rows(mesh: str, hosts: HostMesh) -> Iterator[HostRow]:
    addresses = addresses_of(hosts)
    answers = ask_agents(addresses, DescribeHost())
    for number, (address, answer) in enumerate(zip(addresses, answers, strict=True)):
        try:
            description: HostDescription = answer.get(timeout=PATIENCE)
        except (MonarchError, TimeoutError) as error:
            yield HostRow(mesh, number, address, "", {}, str(error))
        else:
            procs = Counter(proc.mesh for proc in description.procs)
            yield HostRow(mesh, number, address, description.hostname, dict(procs), "")


class TimeIsUp(BaseException):
    """Raised at the deadline; deliberately not an `Exception`, which other code might catch."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `TimeIsUp` in the main thread when they are over."""

    def over(*_: object) -> None:
        raise TimeIsUp

    assert threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
