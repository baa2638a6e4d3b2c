"""Running the commands of Slurm; what is wrong is told in one line, with what Slurm said."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Mapping

from ..errors import JobError
from .slurm_script import Status, first_error, parse_status

NOT_FOUND = "Invalid job id"
"""What Slurm says of a job that it does not know, or has forgotten."""

_LIMIT = 60.0  # seconds that a command may take


def ask(job: str) -> Status:
    """Ask what becomes of a job.

    Raises:
        JobError: As `run`; `NOT_FOUND` is in it if Slurm knows no such job.
    """
    try:
        return parse_status(run("scontrol", "-o", "show", "job", job))
    except ValueError as error:
        raise JobError(str(error)) from error


def run(*command: str, env: Mapping[str, str] | None = None) -> str:
    """What a command of Slurm prints.

    Raises:
        JobError: There is no such command, or it has failed, with what it said; or it does not come back.
    """
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT
        )
    except FileNotFoundError:
        raise JobError(f"there is no {command[0]} on the PATH of this machine: it is not set up to use Slurm") from None
    except subprocess.TimeoutExpired:
        raise JobError(
            f"{shlex.join(command)} did not come back within {_LIMIT:g} s: is Slurm's controller up?"
        ) from None
    if done.returncode:
        raise JobError(f"{shlex.join(command[:2])}: {first_error(done.stderr + done.stdout)}")
    return done.stdout
