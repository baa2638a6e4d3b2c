"""Running the commands of Slurm; an error is one line, with the words of Slurm."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from ..._commands import run_caught
from ...errors import JobError
from .script import Status, first_error, parse_status

NOT_FOUND = "Invalid job id"
"""What Slurm says of a job that it does not know, or has forgotten."""

_LIMIT = 60.0  # seconds that a command may take
# seconds for which Slurm may not answer while a job is waited for; its controller restarts in a
# minute or two
_OUTAGE = 600.0


def ask(job: str) -> Status:
    """Ask what becomes of a job.

    Raises:
        JobError: As `run`; `NOT_FOUND` is in it if Slurm knows no such job.
    """
    try:
        return parse_status(run("scontrol", "-o", "show", "job", job))
    except ValueError as error:
        raise JobError(str(error)) from error


class WatchedJob:
    """A job of which is asked again and again.

    While Slurm does not answer, as when its controller restarts, the last answer counts, for ten
    minutes.

    Args:
        job: Its id.

    Attributes:
        status: The last answer.
        trouble: Why there is no newer one, for people; empty if there is.

    Raises:
        JobError: As `ask`.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self.status = ask(job)
        self.trouble = ""
        self._answered = time.monotonic()

    def ask(self) -> None:
        """Ask once more.

        Raises:
            JobError: Slurm knows no such job any more; or has not answered for too long.
        """
        try:
            self.status = ask(self._job)
        except JobError as error:
            if NOT_FOUND in str(error) or time.monotonic() - self._answered > _OUTAGE:
                raise
            self.trouble = f"; Slurm does not answer now: {error}"
        else:
            self._answered, self.trouble = time.monotonic(), ""


def submit(script: str) -> str:
    """Submit the text of a batch script; return the id of the job.

    The text goes through standard input: a file named by its path could be replaced by another user
    before it is read.

    Raises:
        JobError: As `run`; also if the job could never start.
    """
    # what a job around this one has set would count as options of ours
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }
    # else it may wait for what will never be
    run("sbatch", "--test-only", env=environment, said=script)
    said = run("sbatch", "--parsable", env=environment, said=script)
    return said.strip().splitlines()[-1].partition(";")[0]


def steps_of(job: str, name: str) -> list[str]:
    """The steps of a job that have a name."""
    steps = [
        line.split()
        for line in run("squeue", "--steps", "-h", "-j", job, "-o", "%i %j").splitlines()
    ]
    return [
        step for step, called in (words for words in steps if len(words) == 2) if called == name
    ]


def cancel(job: str) -> None:
    """Cancel a job, or a step; fine if it has ended."""
    try:
        run("scancel", job)
    except JobError as error:
        if NOT_FOUND not in str(error) and "already" not in str(error):
            raise


def run(
    *command: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, said: str = ""
) -> str:
    """Run a command of Slurm with this input, and return its output.

    Raises:
        JobError: There is no such command, or it has failed, with what it said; or it does not come
            back.
    """
    try:
        done = run_caught(command, _LIMIT, said, env=env, cwd=cwd)
    except FileNotFoundError:
        raise JobError(
            f"there is no {command[0]} on the PATH of this machine: it is not set up to use Slurm"
        ) from None
    except subprocess.TimeoutExpired:
        raise JobError(
            f"{shlex.join(command)} did not come back within {_LIMIT:g} s: is Slurm's"
            " controller up?"
        ) from None
    if done.returncode:
        raise JobError(f"{shlex.join(command[:2])}: {first_error(done.stderr + done.stdout)}")
    return done.stdout
