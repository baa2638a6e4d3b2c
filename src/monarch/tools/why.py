"""The command ``monarch why``: says in one sentence why a running program does not go on.

For users and scripts; `monarch.why` finds the reason, and the exit status says how bad it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..programs import connect
from ..why import report
from ..why.gather import of_program
from ..why.run import of_run
from .found import OPTION, PROGRAM, found
from .json_option import JSON, print_lines, print_result

app = typer.Typer()


@app.command(epilog="Example: monarch why || notify")
def why(
    program: PROGRAM = None,
    option: OPTION = None,
    seconds: Annotated[
        float, typer.Option(help="Between two looks, which tell hung ranks from slow ones.")
    ] = 1.0,
    as_json: JSON = False,
) -> None:
    """Say why a program does not go on, or that it does.

    Then: what each rank does, equal ones together; who waits for whom; troubles of processes and
    hosts. Those who hold up the others are marked with >. Exit status 0 if it is fine, 3 if it is
    slow, 4 if it is stuck, 5 if it goes on without ranks that have failed.
    """
    what = found(program, option)
    if isinstance(what, Path):
        verdict = of_run(what)
    else:
        with connect(what) as connection:
            verdict = of_program(connection, seconds)
    if as_json:
        print_result(verdict.to_json(), 2)
    else:
        print_lines(report.lines(verdict))
    raise typer.Exit(verdict.exit_status)
