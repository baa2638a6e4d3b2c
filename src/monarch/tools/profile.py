"""``monarch profile``.

What all processes of a running program do for some seconds, as a file for ui.perfetto.dev.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..telemetry.profile import Profile
from .found import OPTION, PROGRAM, reach
from .json_option import JSON, print_result
from .query import duration

_COUNTED = ("spans", "actors", "procs")

app = typer.Typer()


@app.command(epilog="Example: monarch profile --seconds 5 -o step.pftrace")
def profile(
    program: PROGRAM = None,
    option: OPTION = None,
    seconds: Annotated[
        str, typer.Option("--seconds", "--time", help="How long: 5, 500ms, 2m.")
    ] = "10s",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The file. Default: one here that is named by the time."
        ),
    ] = None,
    torch: Annotated[
        bool, typer.Option("--torch", help="Have torch's profiler run in ranks that use torch.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Record what processes of a program do: messages, spans.

    ui.perfetto.dev opens the file.

    Messages are known of actors that were spawned with telemetry. Meanwhile each costs its actor
    about a microsecond more.
    """
    taken = duration(seconds if not seconds.replace(".", "", 1).isdigit() else f"{seconds}s")
    with reach(program, option) as connection:
        recording = Profile(torch=torch, connection=connection)
        typer.echo(f"Collecting traces for {seconds}...", err=True)
        recording.record(taken)
        path = recording.export_perfetto_trace(output)
    for who, why in recording.missing.items():
        typer.echo(f"{who}: {why}", err=True)
    told = {}
    if recording.timeline is not None:
        told = dict(zip(_COUNTED, recording.timeline[1:], strict=True))
    if told:
        typer.echo(
            "Wrote {spans} spans from {actors} actors on {procs} procs.".format(**told), err=True
        )
    all_of_it = {"path": str(path), **told, "missing": dict(recording.missing)}
    print_result(all_of_it if as_json else str(path))
