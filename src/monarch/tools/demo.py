"""The command ``monarch demo``: serves the admin interface of a simulated training with a known fault.

For trying dashboards, without a cluster; `monarch.demo` simulates the program.
"""

from __future__ import annotations

import json
import os
import time
from typing import Annotated

import typer

from ..admin.door import Door
from ..admin.keys import ACT, VIEW
from ..demo.faults import FAULTS
from ..demo.world import DemoWorld
from .admin import serve

app = typer.Typer()


@app.command(epilog="Example: monarch demo --ranks 1000 --fault missing-collective")
def demo(
    ranks: Annotated[int, typer.Option(help="Ranks that train.")] = 1000,
    fault: Annotated[
        str, typer.Option(help=f"What is wrong: {', '.join(FAULTS)}.")
    ] = "missing-collective",
    after: Annotated[
        float | None,
        typer.Option(
            help="Seconds after which the fault begins. Default: it has been there for a while."
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="Where to listen, on this machine; 0 is any.")] = 0,
    view: Annotated[
        bool,
        typer.Option("--view", help="Let in to look only: no stacks, profiles, ends of meshes."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print url, link and token as JSON.")
    ] = False,
) -> None:
    """Show a simulated training of many ranks with a known fault, without starting one.

    It is for trying dashboards.

    Prints a link that lets a browser in, once, and serves until Ctrl-C. What is behind it is
    simulated, and costs one process; the interface is that of `monarch admin`.
    """
    began = time.time()
    DemoWorld(ranks, fault, began, after)  # what is wrong with these is said here
    simulated = {"ranks": ranks, "fault": fault, "began": began, "after": after}
    address, more = f"127.0.0.1:{port}", {"simulated": simulated}
    door = Door(os.getpid(), address, at_once=True, helper="monarch.demo.helper", more=more)

    def show(access: dict[str, str]) -> None:
        print(json.dumps(access) if as_json else access["link"], flush=True)

    said = f"{ranks:,} simulated ranks at {door.url}: {FAULTS[fault].about}; Ctrl-C ends it"
    serve(door, VIEW if view else ACT, show, said)
