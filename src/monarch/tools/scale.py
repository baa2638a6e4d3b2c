"""``monarch scale`` and ``monarch bounce``: other hosts, or other workers, for a job that runs."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ..job.base import telemetry
from ..job.bounce import bounce as start_anew
from .completion import mesh_names
from .exec import numbers
from .found import CONTEXT, running
from .json_option import JSON, say

app = typer.Typer()


@app.command(epilog="Example: monarch scale trainers=4 --replace-lost")
def scale(
    meshes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MESH=HOSTS]...", help="New sizes.", autocompletion=mesh_names),
    ] = None,
    replace_lost: Annotated[
        bool, typer.Option("--replace-lost", help="Put others in the place of lost hosts.")
    ] = False,
    context: CONTEXT = None,
    as_json: JSON = False,
) -> None:
    """Change how many hosts the meshes of a running job have.

    The next `state()` of a program has the new ones.
    """
    sizes = numbers(",".join(meshes or []), "scale")
    if not sizes and not replace_lost:
        raise typer.BadParameter("say what to change: MESH=HOSTS, or --replace-lost")
    saved = running(context)
    # no keyword of such a name is a mesh
    if wrong := [name for name in ("self", "replace_lost") if name in sizes]:
        raise ValueError(
            f"there is no mesh {wrong[0]!r} in this job; --replace-lost puts others in the place of"
            " lost hosts"
        )
    saved.scale(replace_lost=replace_lost, **sizes)
    say(as_json, f"scaled: {saved!r}", job=repr(saved), id=saved.apply_id)


@app.command(epilog="Example: monarch bounce")
def bounce(context: CONTEXT = None, as_json: JSON = False) -> None:
    """Start the workers of a job anew, in the same allocation.

    They are on the same hosts, and have the code and settings of now.

    What runs on its hosts ends, also that of other programs.
    """
    saved = running(context)
    began = time.monotonic()
    telemetry.look_on()
    count = start_anew(saved)
    seconds = time.monotonic() - began
    say(
        as_json,
        f"{count} workers of {saved!r} have started anew in {seconds:.1f} s",
        workers=count,
        seconds=seconds,
    )
