"""``monarch shell``: an interactive shell on a host of the current job."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .. import job
from ..job.base import telemetry
from ..job.commands import places_of
from .completion import mesh_names
from .exec import ENV, KILL, WORKDIR, numbers, pair, pick
from .found import applied

app = typer.Typer()


@app.command(epilog="Example: monarch shell --mesh trainers --point hosts=1")
def shell(
    mesh: Annotated[
        str | None,
        typer.Option(help="A host of this mesh. Default: the first.", autocompletion=mesh_names),
    ] = None,
    point: Annotated[
        str | None, typer.Option(help="Which host, such as hosts=1. Default: the first.")
    ] = None,
    env: ENV = None,
    workdir: WORKDIR = None,
    kill: KILL = False,
) -> None:
    """Open a shell on a host of the job, which starts if need be.

    The exit status is the shell's.

    Where stdin is no terminal, the shell reads commands from it: monarch shell < commands.
    """
    variables = dict(pair(each, "-e", "NAME=VALUE") for each in env or [])
    place = numbers(point, "--point")
    described = applied(None)
    telemetry.look_on(mounts=True)
    hosts = pick(described, mesh)
    number, _ = places_of(hosts.sizes, None, place)[0]
    host = hosts.flatten("rank").slice(rank=number) if hosts.sizes else hosts
    try:
        sys.exit(job.shell(host, variables, workdir))
    finally:
        if kill:
            described.kill()
