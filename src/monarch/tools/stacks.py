"""``monarch stacks``: what every rank of a running program does right now."""

from __future__ import annotations

from typing import Annotated

import typer

from ..stacks.gather import of_program
from .found import OPTION, PROGRAM, reach
from .json_option import JSON, print_lines, print_result

app = typer.Typer()


@app.command(epilog="Example: monarch stacks --mesh trainers --rank 0-7")
def stacks(
    program: PROGRAM = None,
    option: OPTION = None,
    mesh: Annotated[
        str | None, typer.Option(help="Name of a mesh of procs. Default: all, and the client.")
    ] = None,
    rank: Annotated[
        str | None, typer.Option(help="Ranks of it: 0,3-5 or ::2 or hosts=1,gpus=0:4.")
    ] = None,
    native: Annotated[
        bool, typer.Option("--native", help="With the functions of C libraries, by py-spy.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also idle threads, and all frames of Monarch.")
    ] = False,
    as_json: JSON = False,
) -> None:
    """Show the Python stacks of all ranks, equal ones together.

    The most frequent stack of a mesh comes first, what stands elsewhere last. Frames of your own
    code are marked with >.
    """
    with reach(program, option) as connection:
        found = of_program(connection, mesh, rank, native).get()
    if as_json:
        print_result(found.to_json(), 2)
        return
    print_lines(found.lines(everything))
