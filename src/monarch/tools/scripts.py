"""``monarch run`` and ``monarch serve``.

Unchanged scripts of `torchrun`, on this machine or on the hosts of a job.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn

import typer

from ..actor import HostMesh, this_host
from ..errors import JobError
from ..job import JobTrait, current
from ..job.spmd import SPMDJob
from ..spmd import launcher
from ..spmd.options import Options, options_of, parse_command, parser
from .completion import mesh_names, meshes_of
from .exec import check_mesh, pick
from .found import applied
from .json_option import JSON
from .utils import Misuse, reading

app = typer.Typer()


@app.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": [],
    },
    epilog="Example: monarch run --nproc-per-node 8 train.py --lr 0.1",
)
def run(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[OPTIONS] SCRIPT [ARGS]...")
    ] = None,
) -> None:
    """Run a script on every rank of some hosts, as torchrun does.

    `monarch run --help` lists them.
    """
    reader = parser("monarch run")
    reader.add_argument(
        "--job", metavar="MODULE.NAME", help="job whose hosts it runs on; default: this machine"
    )
    reader.add_argument(
        "--mesh", metavar="NAME", help="which of the job's host meshes; default: its first"
    )
    reader.add_argument(
        "--json", action="store_true", help="print how it has ended as JSON, behind the output"
    )
    with reading():
        parsed = reader.parse_args(arguments or [])
        options = options_of(parsed)
    _check(options, "run")
    _launch(lambda: _hosts(parsed.job, parsed.mesh, options.nodes), options, parsed.json)


@app.command(
    context_settings={"allow_interspersed_args": False},
    epilog=(
        "Example: monarch serve --job jobs.cluster torchrun --nnodes 2 --nproc-per-node 8 train.py"
        " --lr 0.1"
    ),
)
def serve(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            help="torchrun or python, and what follows. Default: the command of the job."
        ),
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(
            "--job", help="The job, as module.attribute. Default: that of the active context."
        ),
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            help="Which of its host meshes. Default: its first.", autocompletion=mesh_names
        ),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Run a command of torchrun on the hosts of a job.

    The job starts if it does not run, and stays for the next command.

    The job becomes that of the active context. One that `monarch.job.spmd.serve` has made has a
    command of its own.
    """
    described = applied(spec)
    if not command and not isinstance(described, SPMDJob):
        raise JobError(
            f"{described!r} has no command of its own: give one, such as torchrun train.py"
        )
    with reading():
        options = parse_command(command) if command else described._options  # type: ignore[attr-defined]
    _check(options, "serve")
    check_mesh(mesh, meshes_of(described))
    if spec is not None:
        current.set_current_job(spec)  # now that nothing in the words is wrong
    _launch(lambda: pick(described, mesh), options, as_json, described)


def _check(options: Options, command: str) -> None:
    """Warn of options without effect; raise an error for a script that is not there."""
    for option, why in options.without_effect.items():
        print(f"monarch {command}: {option} has no effect: {why}", file=sys.stderr)
    if not options.no_python and not options.module and not os.path.exists(options.script):
        raise FileNotFoundError(f"there is no script {options.script!r} in {os.getcwd()}")
    package = options.script.partition(".")[0]
    # ranks look in this folder first; this program may not
    here = importlib.machinery.PathFinder.find_spec(package, [os.getcwd()])
    if options.module and here is None and importlib.util.find_spec(package) is None:
        raise ModuleNotFoundError(f"there is no module {options.script!r} in {os.getcwd()}")


def _launch(
    hosts: Callable[[], HostMesh],
    options: Options,
    as_json: bool,
    described: JobTrait | None = None,
) -> NoReturn:
    stdout = sys.stdout
    if as_json:
        sys.stdout = sys.stderr  # what ranks print, until the end
    outcome = launcher.launch(hosts(), options)
    if as_json:
        failed = [] if outcome.signal else [each.rank for each in outcome.failures]
        told = {"status": outcome.status, "restarts": outcome.restarts, "failed": failed}
        job = {} if described is None else {"job": repr(described), "id": described.apply_id}
        print(json.dumps({**job, **told}), file=stdout, flush=True)
    if text := launcher.explain(outcome, options):
        print(text, file=sys.stderr)
    sys.exit(outcome.status)


def _hosts(spec: str | None, mesh: str | None, nodes: tuple[int, int] | None) -> HostMesh:
    if spec is None:
        if mesh is not None:
            raise Misuse("--mesh names a mesh of a job: give --job as well")
        if nodes is not None and nodes[0] > 1:
            raise Misuse(
                f"--nnodes asks for {nodes[0]} hosts: --job MODULE.NAME says where they are"
            )
        return this_host()
    return pick(current.import_spec(spec), mesh)
