"""The command ``monarch demo``: the dashboard of a simulated training that was recorded."""

from __future__ import annotations

import lzma
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from ..admin.keys import ACT, VIEW
from ..dashboard import RECORDED
from .dashboard import serve_run
from .json_option import JSON, print_result

app = typer.Typer()


@app.command(epilog="Example: monarch demo --port 8265")
def demo(
    port: Annotated[int, typer.Option(help="Where to listen, on this machine; 0 is any.")] = 0,
    view: Annotated[bool, typer.Option("--view", help="Let in to look only: no stacks.")] = False,
    as_json: JSON = False,
) -> None:
    """Show a recorded training with a known fault.

    It is for trying dashboards, without a cluster.

    Prints a link that lets a browser in, once, and serves until Ctrl-C. The interface is that of
    `monarch dashboard FILE`. In the repository, `python -m benchmarks.demo` simulates one that
    goes on, of as many ranks, and with any of its faults.
    """

    def show(access: dict[str, str]) -> None:
        print_result(access if as_json else access["link"])

    with tempfile.TemporaryDirectory(prefix="monarch-demo-") as folder:
        run = Path(folder, "run.duckdb")
        run.write_bytes(lzma.decompress(RECORDED.read_bytes()))
        serve_run(run, VIEW if view else ACT, show, f"127.0.0.1:{port}")
