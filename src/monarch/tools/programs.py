"""``monarch list``: the running programs of this user on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .._words import duration, named
from ..errors import SupervisionError
from ..programs import Program, connect, find, procs_of
from .found import PROGRAM, found
from .json_option import JSON, print_result
from .utils import Misuse

_WIDEST = 2000  # characters

app = typer.Typer()


@app.command("list", epilog="Example: monarch list")
def list_programs(program: PROGRAM = None, as_json: JSON = False) -> None:
    """Show your running programs and workers here, with hosts and meshes."""
    rows = [_row(each) for each in _chosen(program)]
    if as_json:
        print_result(rows, 2)
        return
    if not rows:
        print("No Monarch program of yours runs on this machine.")
        return
    table = table_of("pid> kind for> hosts> meshes command")
    for row in rows:
        told = ", ".join(f"{name} ({procs})" for name, procs in row["meshes"].items())
        table.add_row(
            str(row["pid"] or "?"), row["kind"], duration(time.time() - row["since"]),
            str(len(row["hosts"]) or "-"), Text(named(row["error"] or told or "-")), Text(named(row["command"])),
        )  # fmt: skip
    console().print(table)


def _chosen(program: str | None) -> list[Program]:
    one = None if program is None else found(program)
    if isinstance(one, Path):
        raise Misuse(f"{one} is a file: of programs that run, say which")
    return find() if one is None else [one]


def _row(program: Program) -> dict[str, Any]:
    hosts: list[str] = []
    meshes: dict[str, int] = {}
    error = None
    try:
        with connect(program) as connection:
            hosts = [agent.host for agent in connection.agents]
            silent: dict[str, str] = {}
            for proc in procs_of(connection.hub, connection.agents, silent.__setitem__):
                meshes[proc.mesh] = meshes.get(proc.mesh, 0) + 1
            if silent:  # one is shown: the others say the same, or nearly
                (host, why), *others = silent.items()
                error = f"host {host} can't be reached: {why.partition(chr(10))[0]}"
                error += f"; and {len(others)} more" if others else ""
    except (ConnectionError, SupervisionError, TimeoutError) as reason:
        error = str(reason)
    kind = "worker" if program.is_worker else "program"
    return {
        "pid": program.pid, "kind": kind, "since": program.since, "command": program.command, "hosts": hosts,
        "meshes": meshes, "error": error,
    }  # fmt: skip


def table_of(headings: str) -> Table:
    """An empty table of a command. Columns to align on the right have a ``>`` in their headings."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings.split():
        side: Literal["right", "left"] = "right" if heading.endswith(">") else "left"
        table.add_column(heading.rstrip(">"), justify=side, overflow="fold")
    return table


def console() -> Console:
    """The console for tables on stdout.

    It has the terminal's width, or without a terminal as much as a table takes.
    """
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=_WIDEST)
