"""``monarch run``: unchanged scripts of `torchrun`, on this machine or on the hosts of a job."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Annotated

import typer

from ..actor import HostMesh, this_host
from ..job import current
from ..spmd import launcher
from ..spmd.options import options_of, parser

app = typer.Typer()


@app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []},
    epilog="Example: monarch run --nproc-per-node 8 train.py --lr 0.1",
)
def run(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[OPTIONS] SCRIPT [ARGS]...")] = None,
) -> None:
    """Run a script on every rank of some hosts, as torchrun does, with its options. `monarch run --help` lists them."""
    reader = parser("monarch run")
    reader.add_argument("--job", metavar="MODULE.NAME", help="job whose hosts it runs on; default: this machine")
    reader.add_argument("--mesh", metavar="NAME", help="which of the job's host meshes; default: its first")
    parsed = reader.parse_args(arguments or [])
    options = options_of(parsed)
    for option, why in options.without_effect.items():
        print(f"monarch run: {option} has no effect: {why}", file=sys.stderr)
    if not options.no_python and not options.module and not os.path.exists(options.script):
        raise FileNotFoundError(f"there is no script {options.script!r} in {os.getcwd()}")
    if options.module and importlib.util.find_spec(options.script.partition(".")[0]) is None:
        raise ModuleNotFoundError(f"there is no module {options.script!r}")
    outcome = launcher.launch(_hosts(parsed.job, parsed.mesh, options.nodes), options)
    text = launcher.explain(outcome, options)
    if text:
        print(text, file=sys.stderr)
    sys.exit(outcome.status)


def _hosts(spec: str | None, mesh: str | None, nodes: tuple[int, int] | None) -> HostMesh:
    if spec is None:
        if mesh is not None:
            raise ValueError("--mesh names a mesh of a job: give --job as well")
        if nodes is not None and nodes[0] > 1:
            raise ValueError(f"--nnodes asks for {nodes[0]} hosts: --job MODULE.NAME says where they are")
        return this_host()
    state = current.import_spec(spec).state()
    names = list(state._hosts)
    return state._hosts[mesh or names[0]] if mesh in (None, *names) else getattr(state, mesh or "")
