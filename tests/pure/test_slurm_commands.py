"""Asking Slurm what becomes of a job, also while its controller restarts."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from monarch.errors import JobError
from monarch.job import SlurmJob
from monarch.job.slurm import commands as slurm_commands
from monarch.job.slurm import wait as slurm_wait
from monarch.job.slurm.commands import NOT_FOUND, WatchedJob

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
    job = WatchedJob("7")
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
    job = WatchedJob("7")
    slurm_says(monkeypatch, "", REFUSED)
    clock[0] = 601.0
    with pytest.raises(JobError, match="connect failure"):
        job.ask()


def test_a_job_that_slurm_has_forgotten_is_an_error_at_once(
    monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    slurm_says(monkeypatch, ANSWER.format("PENDING"))
    job = WatchedJob("7")
    slurm_says(monkeypatch, "", f"{NOT_FOUND} specified")
    with pytest.raises(JobError, match=NOT_FOUND):
        job.ask()


def test_the_wait_for_workers_goes_on_when_slurm_answers_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = iter(["PENDING", "", "", "PENDING", "CANCELLED"])

    def run(*command: str) -> str:
        state = next(answers)
        if not state:
            raise JobError(REFUSED)
        return ANSWER.format(state)

    monkeypatch.setattr(slurm_commands, "run", run)
    monkeypatch.setattr(slurm_wait, "_ASK", 0.0)
    job = SlurmJob({"a": 1})
    job._job_id, job._folder, job._logs = "7", tmp_path, f"{tmp_path}/"
    with pytest.raises(JobError, match="has no workers: it is CANCELLED"):
        job._wait_for_workers()


def test_slurm_gets_the_text_of_a_script_and_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def run(*command: str, env: object, said: str) -> str:
        asked.append((*command, said))
        return "7;cluster\n"

    monkeypatch.setattr(slurm_commands, "run", run)
    assert slurm_commands.submit("a script") == "7"
    options = "--test-only", "--parsable"
    assert asked == [("sbatch", option, "a script") for option in options]
