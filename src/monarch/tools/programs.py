"""``monarch list``: the running programs of this user on this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from .._words import duration
from ..errors import SupervisionError
from ..programs import Program, connect, find, procs_of
from .found import OPTION, PROGRAM, found, pending
from .json_option import JSON, print_result, print_table
from .utils import Misuse

app = typer.Typer()


@app.command("list", epilog="Example: monarch list")
def list_programs(program: PROGRAM = None, option: OPTION = None, as_json: JSON = False) -> None:
    """Show your running programs and workers, hosts and meshes."""
    rows = [_row(each) for each in _chosen(program, option)]
    if as_json:
        print_result(rows, 2)
    elif rows:
        print_table("pid kind for hosts meshes command", [("plain", _cells(row)) for row in rows])
    else:
        print(f"No Monarch program of yours runs on this machine{pending()}.")


def _cells(row: dict[str, Any]) -> list[str]:
    told = ", ".join(f"{name} ({procs})" for name, procs in row["meshes"].items())
    age, hosts = duration(time.time() - row["since"]), len(row["hosts"])
    return [
        str(row["pid"] or "?"), row["kind"], age, str(hosts or "-"), row["error"] or told or "-", row["command"]
    ]  # fmt: skip


def _chosen(program: str | None, option: str | None) -> list[Program]:
    one = None if program is None and option is None else found(program, option)
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
