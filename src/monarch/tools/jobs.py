"""``monarch apply`` and ``monarch kill``: the job of a context starts, and ends."""

from __future__ import annotations

from typing import Annotated

import typer

from ..job import current
from ..job.base import telemetry
from .found import applied, running
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
    if spec is not None:
        current.set_current_job(spec)
    telemetry.look_on()
    described.state()
    say(as_json, f"running: {described!r}", job=repr(described), id=described.apply_id)


@app.command(epilog="Example: monarch kill")
def kill(context: CONTEXT = None, as_json: JSON = False) -> None:
    """End the running job of a context, and all that it started."""
    saved = running(context)
    described, number = repr(saved), saved.apply_id
    saved.kill()
    say(as_json, f"ended: {described}", job=described, id=number)
