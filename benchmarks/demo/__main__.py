"""Serves the admin interface of a simulated training, or records one for ``monarch demo``.

``python -m benchmarks.demo --ranks 1000 --fault missing-collective``
"""

from __future__ import annotations

import json
import lzma
import os
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from monarch.admin.door import Door
from monarch.admin.keys import ACT, VIEW
from monarch.dashboard import RECORDED
from monarch.telemetry.run_file import snapshot_source, write_run
from monarch.tools.admin import serve
from monarch.why.run import judged

from .faults import FAULTS
from .helper import reach
from .world import DemoWorld

_ROOT = str(Path(__file__).parents[2])
_LASTED = 80.0  # seconds that a recorded run has gone on: it is to be small
_SECONDS = 60.0  # in which a recording is made
SMALLEST = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "pb": 0}]
"""How a recording is packed: bytes in which no others are aligned to anything."""


def main(
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
    record: Annotated[
        bool, typer.Option("--record", help="Write the run that `monarch demo` shows, and end.")
    ] = False,
) -> None:
    """Show a simulated training of many ranks with a known fault, without starting one.

    Prints a link that lets a browser in, once, and serves until Ctrl-C. What is behind it is
    simulated, and costs one process; the interface is that of `monarch admin`.
    """
    began = time.time()
    simulated = {"ranks": ranks, "fault": fault, "began": began, "after": after}
    if record:
        recorded({**simulated, "lasted": _LASTED})
        return
    DemoWorld(ranks, fault, began, after)  # what is wrong with these is said here
    address, more = f"127.0.0.1:{port}", {"simulated": simulated}
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [_ROOT, os.environ.get("PYTHONPATH")])
    )  # where the helper finds `benchmarks`
    door = Door(os.getpid(), address, at_once=True, helper="benchmarks.demo.helper", more=more)

    def show(access: dict[str, str]) -> None:
        print(json.dumps(access) if as_json else access["link"], flush=True)

    said = f"{ranks:,} simulated ranks at {door.url}: {FAULTS[fault].about}; Ctrl-C ends it"
    serve(door, VIEW if view else ACT, show, said)


def recorded(simulated: dict[str, Any]) -> None:
    """Write the file of a run as `monarch demo` shows it, in place of the one that is there."""
    connection = reach({"simulated": simulated, "pid": os.getpid()}).connection
    about = {**judged(connection), "reason": "a simulated training, recorded"}
    with tempfile.TemporaryDirectory() as folder:
        path = write_run(Path(folder, "run.duckdb"), snapshot_source(connection), about, _SECONDS)
        RECORDED.write_bytes(lzma.compress(path.path.read_bytes(), filters=SMALLEST))
    print(f"{RECORDED}: {RECORDED.stat().st_size:,} bytes")


if __name__ == "__main__":
    typer.run(main)
