"""Waiting for the workers of a Slurm job: their reports, and what Slurm says meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from ...errors import JobError
from ..base.contract import HostId
from ..base.waiting import Waiting
from ..base.worker_spec import WorkerReport
from .commands import WatchedJob
from .parts import SlurmPart, last_words, reported
from .script import PENDING, Status

# seconds between two questions to Slurm; reports are looked for more often, as they cost it nothing
_ASK = 1.0
_LOOK = 0.05


def wait_for_workers(
    job: str,
    held: Mapping[HostId, SlurmPart],
    timeout: float | None,
    logs: str,
    give_up: Callable[[Sequence[SlurmPart]], None],
) -> dict[HostId, WorkerReport]:
    """Wait until the workers of all hosts have reported, and show why some have not.

    Args:
        job: Id of the first Slurm job.
        held: Which Slurm job has each host.
        timeout: Seconds within which they must; None is for ever.
        logs: With which the paths of the job's output begin.
        give_up: Called with the Slurm jobs of workers that have not reported in time, to end them.

    Raises:
        JobError: Some never will, or have not in time.
    """
    with Waiting(f"Slurm job {job}") as waiting:
        asked, watched = 0.0, {part: WatchedJob(part.job) for part in held.values()}
        while True:
            found = reported(held, watched)
            if len(found) == len(held):
                return found
            late = [
                part
                for part in watched
                if any(held[host] == part for host in held.keys() - found.keys())
            ]
            for part in late:
                _check_that_they_come(part, watched[part].status, job, logs)
            first = watched[late[0]]
            state = first.status.describe() + first.trouble
            if waiting.is_longer_than(timeout):
                give_up(late)
                raise JobError(
                    f"Slurm job {', '.join(part.job for part in late)} was cancelled:"
                    f" {len(held) - len(found)} of {len(held)} workers did not run within"
                    f" {timeout:g} s (job_start_timeout); it was {state}"
                )
            if first.status.state not in PENDING:
                state = f"{len(found)} of {len(held)} workers run{first.trouble}"
            rows = [
                (f"job {part.job}", each.status.describe(), f"{len(part.hosts)} hosts")
                for part, each in watched.items()
            ]
            waiting.show(state, rows)
            time.sleep(_LOOK)
            if waiting.seconds - asked > _ASK:
                asked = waiting.seconds
                for each in watched.values():
                    each.ask()


def _check_that_they_come(part: SlurmPart, status: Status, job: str, logs: str) -> None:
    if how := part.why_none_come(status):
        what = "none of its further hosts; scale(replace_lost=True) asks again"
        if part.job == job:
            what = "no workers"
        raise JobError(
            f"Slurm job {part.job} has {what}: {how};"
            f" {last_words(part.folder / 'srun.log', logs.replace('%j', part.job))}"
        )
