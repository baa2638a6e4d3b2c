"""The specification of a worker, from its launcher, and its report. Jobs are in `contract`.

Apart from `contract`, as workers start sooner without all that jobs import.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import NamedTuple

from ..._ours import opened

KEEP = b"k"
"""What a job writes on a lifeline when the worker may outlive it."""

START_AGAIN = signal.SIGUSR1
"""To a worker: when it has been shut down, it starts its program anew, as the same process and at
the same address.
"""

KILLED = "killed"
"""File beside the warning of a worker: SIGTERM is none now, as its job is being ended."""


class WorkerSpec(NamedTuple):
    """A launcher's specification of a worker.

    Variables of the worker's environment may stand in the strings, as ``$NAME``, after the last
    slash; not in `mesh`.

    Attributes:
        mesh: The mesh of its host.
        rank: Which host of it, from 0 on; a string, as launchers that start the same command
            everywhere have it in a variable.
        listen: ``ipc:///path`` or ``tcp://host:port``, where port 0 is any free one.
            ``tcp://:port`` is the address of this machine on the way to `towards`.
        towards: A machine that all others of the job can reach.
        bind: Where to listen if not there: an IP address of this machine, or ``*``.
        folder: Where to leave the report as a file; empty for nowhere.
        report: Descriptor to write the report to, and another line when `KEEP` was read from
            another one; -1 for none.
        lifeline: Descriptor to read from: the worker ends when its other side closes, unless `KEEP`
            comes before; -1 for none.
        farewell: File to make when the end is in order; empty for none.
        machine: What to call its machine in the report; empty for the name that it has itself.
        warning: File to make at SIGTERM, by which a scheduler says that it will end the worker;
            empty to end at once then.
    """

    mesh: str
    rank: str
    listen: str
    towards: str = ""
    bind: str = ""
    folder: str = ""
    report: int = -1
    lifeline: int = -1
    farewell: str = ""
    machine: str = ""
    warning: str = ""


class WorkerReport(NamedTuple):
    """A worker's report once it serves.

    It has the host, the address, and for people, the process and machine.
    """

    mesh: str
    rank: int
    address: str
    machine: str
    pid: int

    def encode(self) -> bytes:
        """One line."""
        return json.dumps(self._asdict()).encode() + b"\n"

    @classmethod
    def decode(cls, line: str | bytes) -> WorkerReport:
        """Read it back."""
        return cls(**json.loads(line))

    def leave(self, folder: Path) -> None:
        """Write it into a folder of reports, where it is seen as a whole or not at all."""
        with opened(folder, make=True) as reports:
            reports.replace(f"{self.mesh}.{self.rank}", self.encode())
