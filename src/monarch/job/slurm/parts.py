"""The Slurm jobs that make up one job of ours.

They are the first, and one for each time that hosts were added to it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..._ours import opened, touch
from ..base.contract import HostId, read_reports
from ..base.launch import last_output
from ..base.worker_spec import KILLED, WorkerReport
from .commands import WatchedJob
from .script import COMPLETING, PENDING, Status


class SlurmPart(NamedTuple):
    """A Slurm job.

    Attributes:
        job: Its id.
        folder: Where its workers report.
        hosts: Which hosts its workers are. The first worker that reports for a mesh is the first of
            that mesh here.
        attempt: How often it was requeued, if Slurm need not be asked: the allocation was made by
            others.
    """

    job: str
    folder: Path
    hosts: tuple[HostId, ...]
    attempt: int | None = None

    def reports(self, status: Status) -> dict[HostId, WorkerReport]:
        """Return the reports of its workers in their latest attempt, by host."""
        ranks: dict[str, list[int]] = {}
        for mesh, rank in self.hosts:
            ranks.setdefault(mesh, []).append(rank)
        found = read_reports(self.folder / f"workers.{self._attempt(status)}")
        return {(report.mesh, ranks[report.mesh][report.rank]): report for report in found}

    def has_ended(self, status: Status) -> bool:
        """Return whether nothing starts workers any more.

        A waiting job was requeued: its end was that of another attempt.
        """
        return (
            status.state not in PENDING
            and (self.folder / f"ended.{self._attempt(status)}").exists()
        )

    def why_none_come(self, status: Status) -> str:
        """Why it will have no further workers, for people; empty if it may."""
        if status.state == COMPLETING:  # soon it has ended, or waits again
            return ""
        if self.has_ended(status):
            return "its workers have ended"
        return "" if status.lives else f"it is {status.describe()}"

    def expect_end(self) -> None:
        """Note that the job is about to be cancelled.

        The warning that Slurm gives then is no news to the program.
        """
        with suppress(FileNotFoundError):
            touch(self.folder / KILLED)

    def _attempt(self, status: Status) -> int:
        return status.restarts if self.attempt is None else self.attempt


def attempt_here() -> int:
    """How often the Slurm job around this program was requeued."""
    return int(os.environ.get("SLURM_RESTART_COUNT", 0))


def holders(parts: Sequence[SlurmPart], hosts: Iterable[HostId]) -> dict[HostId, SlurmPart]:
    """Which part has each host.

    The latest counts, as it was added in the place of one that was lost or given back.
    """
    latest = {host: part for part in parts for host in part.hosts}
    return {host: latest[host] for host in hosts}


def reported(
    held: Mapping[HostId, SlurmPart], watched: Mapping[SlurmPart, WatchedJob]
) -> dict[HostId, WorkerReport]:
    """Return the reports of the workers of hosts, each from the part that has the host."""
    by_part = {part: part.reports(watched[part].status) for part in watched}
    return {host: by_part[part][host] for host, part in held.items() if host in by_part[part]}


def last_words(log: Path, prefix: str) -> str:
    """Return the last output of Slurm and the workers, for people.

    It is read from `log`, or from files with paths that begin with `prefix`.
    """
    folder, _, begin = prefix.rpartition("/")
    with opened(folder, root=folder) as logs:  # which the user may have chosen
        found = map(Path(folder).joinpath, logs.names(re.escape(begin) + ".*"))
    for file in (log, *sorted(found, key=lambda path: path.suffix != ".err")):
        with suppress(OSError):  # there is none, or it is not for us
            if said := last_output(file):
                return said
    return f"nothing was printed (to {folder})"
