"""Asking Slurm what becomes of a job, also while its controller restarts."""

from __future__ import annotations

import time

import pytest

from monarch.errors import JobError
from monarch.job import slurm_commands
from monarch.job.slurm_commands import NOT_FOUND, Watched

ANSWER = "JobId=7 JobState={} Reason=None Restarts=0 StartTime=Unknown NodeList=n0 NumNodes=1"
REFUSED = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def slurm_says(monkeypatch: pytest.MonkeyPatch, answer: str, error: str = "") -> None:
    def run(*command: str) -> str:
        if error:
            raise JobError(error)
        return answer

    monkeypatch.setattr(slurm_commands, "run", run)


def test_while_slurm_does_not_answer_its_last_answer_counts(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    slurm_says(monkeypatch, ANSWER.format("PENDING"))
    job = Watched("7")
    slurm_says(monkeypatch, "", REFUSED)
    for clock[0] in (60.0, 599.0):
        job.ask()
        assert job.status.state == "PENDING"
        assert REFUSED in job.trouble
    slurm_says(monkeypatch, ANSWER.format("RUNNING"))
    job.ask()
    assert (job.status.state, job.trouble) == ("RUNNING", "")
    slurm_says(monkeypatch, "", REFUSED)
    clock[0] += 599.0  # counted from the last answer
    job.ask()
    assert job.status.state == "RUNNING"


def test_a_slurm_that_does_not_answer_for_ten_minutes_is_an_error(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    slurm_says(monkeypatch, ANSWER.format("PENDING"))
    job = Watched("7")
    slurm_says(monkeypatch, "", REFUSED)
    clock[0] = 601.0
    with pytest.raises(JobError, match="connect failure"):
        job.ask()


def test_a_job_that_slurm_has_forgotten_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    slurm_says(monkeypatch, ANSWER.format("PENDING"))
    job = Watched("7")
    slurm_says(monkeypatch, "", f"{NOT_FOUND} specified")
    with pytest.raises(JobError, match=NOT_FOUND):
        job.ask()
