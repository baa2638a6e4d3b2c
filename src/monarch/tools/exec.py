"""``monarch exec``: a command on hosts of the current job."""

from __future__ import annotations

import signal
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from ..actor import HostMesh
from ..config import configure
from ..job import JobTrait
from ..job.base import telemetry
from ..job.commands import Running, RunningCommand, places_of, start
from .completion import mesh_names, meshes_of
from .found import applied
from .utils import Misuse

ENV = Annotated[
    list[str] | None, typer.Option("-e", "--env", help="NAME=VALUE, a variable for it.")
]
WORKDIR = Annotated[
    str | None, typer.Option(help="Its working directory. Default: this one, where it exists.")
]
KILL = Annotated[bool, typer.Option("--kill", help="End the job afterwards.")]

app = typer.Typer()


@app.command(
    "exec",
    context_settings={"allow_interspersed_args": False},
    epilog="Example: monarch exec --all nvidia-smi -L",
)
def run(
    command: Annotated[
        list[str] | None, typer.Argument(help="The command and its arguments.")
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="On every host of every mesh.")] = False,
    mesh: Annotated[
        str | None, typer.Option(help="On every host of this mesh.", autocompletion=mesh_names)
    ] = None,
    one: Annotated[
        bool, typer.Option("--one", help="On the first host of the first mesh; the default.")
    ] = False,
    point: Annotated[
        str | None, typer.Option(help="On these hosts of the first mesh, such as hosts=1.")
    ] = None,
    per_host: Annotated[
        str | None, typer.Option(help="Several times on each host, such as gpus=8.")
    ] = None,
    env: ENV = None,
    workdir: WORKDIR = None,
    script: Annotated[
        str | None, typer.Option(help="A file with a bash script to run; - for stdin.")
    ] = None,
    module: Annotated[str | None, typer.Option("-m", help="A Python module to run.")] = None,
    output_dir: Annotated[
        str | None, typer.Option(help="Folder on the hosts for the output, in place of here.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Show each line of output as a JSON object.")
    ] = False,
    kill: KILL = False,
) -> None:
    """Run a command on hosts of the job, which starts if need be.

    Its output is shown line by line.

    The exit status is the highest that there was. Ctrl-C goes to the command on every host.
    """
    if sum((everywhere, mesh is not None, one, point is not None)) > 1:
        raise typer.BadParameter("give one of --all, --mesh, --one and --point")
    variables = dict(pair(each, "-e", "NAME=VALUE") for each in env or [])
    what = RunningCommand(
        tuple(_words(command or [], script, module)), variables, workdir, output_dir
    )
    ranks = numbers(per_host, "--per-host")
    wanted = None if point is None else numbers(point, "--point")
    if as_json:
        configure(log_format="json")
    described = applied(None)
    telemetry.look_on(mounts=True)
    found = [*described.state()._hosts.values()] if everywhere else [pick(described, mesh)]
    rank = 0 if not everywhere and mesh is None and point is None else None
    try:
        sys.exit(
            _wait(
                [start(hosts, what, places_of(hosts.sizes, rank, wanted), ranks) for hosts in found]
            )
        )
    finally:
        if kill:
            described.kill()


def _wait(running: list[Running]) -> int:
    while True:
        try:
            return max(each.status.get() for each in running)
        except KeyboardInterrupt:
            for each in running:
                each.signal(signal.SIGINT)


def _words(command: list[str], script: str | None, module: str | None) -> list[str]:
    if script is not None:
        text = sys.stdin.read() if script == "-" else Path(script).read_text()
        return ["bash", "-c", text, "bash", *command]
    if module is not None:
        return ["-m", module, *command]
    if not command:
        raise typer.BadParameter("there is no command: give one, or --script, or -m")
    return command


def pick(described: JobTrait, name: str | None) -> HostMesh:
    """The mesh of that name of a job, which starts if it does not run; without one, the first.

    Raises:
        ValueError: See `check_mesh`.
    """
    check_mesh(name, meshes_of(described))
    meshes = described.state()._hosts
    check_mesh(name, meshes)
    return meshes[name or next(iter(meshes))]


def check_mesh(name: str | None, known: Collection[str]) -> None:
    """Check that a mesh is one of those that are known; none are of a job that is to tell.

    Raises:
        ValueError: It is none of them.
    """
    if name is not None and known and name not in known:
        raise ValueError(f"the job has no mesh {name!r}; it has {', '.join(known)}")


def numbers(text: str | None, option: str) -> dict[str, int]:
    """``D=N,...`` as coordinates, or sizes; of no text, none."""
    pairs = [pair(each, option, "DIM=NUMBER") for each in text.split(",")] if text else []
    try:
        return {name: int(number) for name, number in pairs}
    except ValueError:
        raise Misuse(f"{option} takes DIM=NUMBER, got {text!r}") from None


def pair(text: str, option: str, form: str) -> tuple[str, str]:
    """``NAME=VALUE`` as a pair."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise Misuse(f"{option} takes {form}, got {text!r}")
    return name, value
