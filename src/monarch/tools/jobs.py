"""``monarch apply`` and ``monarch kill``: the job of a context starts, and ends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import job
from ..job import current, telemetry
from .found import applied
from .json_option import JSON, say
from .status import CONTEXT

app = typer.Typer()


@app.command(
    epilog="Example: monarch apply jobs.training, for the job `training` of the file jobs.py"
)
def apply(
    spec: Annotated[
        str | None,
        typer.Argument(help="The job, as module.attribute. Default: the one given last."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Start the job of the active context, if it does not run."""
    described = applied(spec)
    telemetry.look_on()
    described.state()
    say(as_json, f"running: {described!r}", job=repr(described), id=described.apply_id)


@app.command(epilog="Example: monarch kill")
def kill(
    context: CONTEXT = None,
    as_json: JSON = False,
) -> None:
    """End the running job of a context, and all that it started."""
    path = Path(job.DEFAULT_JOB_PATH) if context is None else current.state_path(context)
    if not path.exists():
        raise job.JobError(f"no job runs here: there is no {path}")
    running = job.job_load(path)
    if not running.active:
        raise job.JobError(f"{path} keeps a job that does not run: {running!r}")
    described, number = repr(running), running.apply_id
    running.kill()
    say(as_json, f"ended: {described}", job=described, id=number)
