"""The commands. Each is a thin layer over the public API; results go to stdout, all else to stderr.

Exit status: 0 if it worked, 1 if it did not, with one line that says why, 2 for wrong usage. What
`monarch why` finds is 0, 3 or 4; docs/commands.md has those of commands that run others.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .. import actor, job, rdma, trust
from ..config import configure
from ..errors import MonarchError
from ..job import current, telemetry
from ..job.contract import WorkerSpec
from ..job.worker_main import serve
from . import (
    admin,
    contexts,
    dashboard,
    debug,
    demo,
    logs,
    metrics,
    port_forward,
    profile,
    programs,
    query,
    report,
    scale,
    scripts,
    shell,
    stacks,
    status,
    sync,
    tui,
    why,
)
from . import exec as commands

# What the user can put right; anything else is a bug, and shows a traceback.
_USER_ERRORS = (MonarchError, ValueError, ImportError, OSError, NotImplementedError)

app = typer.Typer(
    name="monarch",
    help="Actors on meshes of processes: workers, jobs, secrets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(contexts.app, name="context")
app.add_typer(logs.app)
app.add_typer(report.app)
app.add_typer(programs.app)
app.add_typer(stacks.app)
app.add_typer(query.app)
app.add_typer(metrics.app)
app.add_typer(why.app)
app.add_typer(profile.app)
app.add_typer(admin.app)
app.add_typer(dashboard.app)
app.add_typer(tui.app)
app.add_typer(demo.app)
app.add_typer(debug.app)
app.add_typer(scripts.app)
app.add_typer(commands.app)
app.add_typer(shell.app)
app.add_typer(status.app)
app.add_typer(scale.app)
app.add_typer(sync.app)
app.add_typer(port_forward.app)

_notes = Console(stderr=True, highlight=False, soft_wrap=True)


@app.command(epilog="Example: monarch worker --listen tcp://0.0.0.0:26600")
def worker(
    listen: Annotated[
        str,
        typer.Option(
            help=(
                "Where clients attach: tcp://0.0.0.0:26600, ipc:///path, or DIAL@BIND to advertise"
                " another."
            )
        ),
    ],
    ca: Annotated[
        str | None, typer.Option(help="File with the CA certificates of those to let in.")
    ] = None,
    private_key: Annotated[
        str | None, typer.Option(help="File with this worker's own key and certificate.")
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the shared secret. Default: MONARCH_SECRET_FILE, ~/.monarch/secret."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            help="Folder to leave a file in that says where it listens, once it does; for port 0."
        ),
    ] = None,
    idle_limit: Annotated[
        str | None,
        typer.Option(
            help="End when no client has been attached for so long, such as 30m. Default: never."
        ),
    ] = None,
    lifeline: Annotated[bool, typer.Option("--lifeline", help="End when stdin closes.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print where it listens as a JSON object, once it does.")
    ] = False,
) -> None:
    """Serve as a host, until a client shuts it down.

    Clients prove who they are with a certificate (--ca and --private-key) or with a shared secret,
    which `monarch secret` makes.
    """
    if secret_file is not None:
        if ca is not None or private_key is not None:
            raise typer.BadParameter(
                "give either certificates or a secret", param_hint="--secret-file"
            )
        # it would win; and what procs inherit should be what is in use
        os.environ.pop("MONARCH_SECRET", None)
        os.environ["MONARCH_SECRET_FILE"] = str(secret_file.expanduser().absolute())
    if idle_limit is not None:
        configure(worker_idle_limit=idle_limit)
    told = sys.stdout.fileno() if as_json else -1
    spec = WorkerSpec(
        "worker", "0", listen, report=told, folder=str(report or ""), lifeline=0 if lifeline else -1
    )
    try:
        serve(spec, ca=ca, private_key=private_key)
    except RuntimeError as error:  # it was ended in another way than by a client
        raise job.JobError(str(error)) from error


@app.command(epilog="Example: monarch secret ~/.monarch/secret")
def secret(
    path: Annotated[
        Path | None,
        typer.Argument(help="New file for it, readable by you alone. Default: print it."),
    ] = None,
    as_json: status.JSON = False,
) -> None:
    """Make a new shared secret. Clients and workers with the same secret let each other in."""
    if path is None:
        made = trust.make_secret()
        print(json.dumps({"secret": made}) if as_json else made)
        return
    trust.write_secret_file(path)
    advice = (
        f"wrote {path}: copy it to every host, and set MONARCH_SECRET_FILE where it is not"
        " ~/.monarch/secret"
    )
    scale.say(as_json, advice, path=str(path))


@app.command(
    epilog="Example: monarch apply jobs.training, for the job `training` of the file jobs.py"
)
def apply(
    spec: Annotated[
        str | None,
        typer.Argument(help="The job, as module.attribute. Default: the one given last."),
    ] = None,
    as_json: status.JSON = False,
) -> None:
    """Start the job of the active context, if it does not run."""
    described = scale.applied(spec)
    telemetry.look_on()
    described.state()
    scale.say(as_json, f"running: {described!r}", job=repr(described), id=described.apply_id)


@app.command(epilog="Example: monarch kill")
def kill(
    context: status.CONTEXT = None,
    as_json: status.JSON = False,
) -> None:
    """End the running job of a context, and all that it started."""
    path = Path(job.DEFAULT_JOB_PATH) if context is None else current.state_path(context)
    if not path.exists():
        raise job.JobError(f"no job runs here: there is no {path}")
    running = job.job_load(path)
    if not running.active:
        raise job.JobError(f"{path} keeps a job that does not run: {running!r}")
    described, number = repr(running), running.apply_id
    running.kill()
    scale.say(as_json, f"ended: {described}", job=described, id=number)


@app.command(name="rdma", epilog="Example: monarch rdma")
def transfers(as_json: status.JSON = False) -> None:
    """Show which paths one-sided transfers take from here, and why not the others."""
    buffer = rdma.RDMABuffer(bytearray(1))
    with actor.this_host().spawn_procs() as procs:
        explanation = buffer.explain(procs)
    if as_json:
        paths = [each._asdict() for each in explanation.paths]
        print(
            json.dumps(
                {"paths": paths, "between_hosts": rdma.describe_between_hosts()},
                indent=2,
                default=str,
            )
        )
        return
    _, _, lines = str(explanation).partition("\n")
    print(
        f"between two processes of this host\n{lines}\nbetween hosts\n->"
        f" {rdma.describe_between_hosts()}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments, those of the process by default.

    Then run the command, and turn errors of the user into one line.
    """
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        app(args=argv, prog_name="monarch")
    except _USER_ERRORS as error:
        _notes.print(Text.assemble(("error: ", "bold red"), str(error)))
        sys.exit(1)


def get_parser() -> argparse.ArgumentParser:
    """A parser for programs that call ``args.func(args)``, as with Monarch 0.7.

    It passes all arguments on to `main`.
    """
    parser = argparse.ArgumentParser(prog="monarch", add_help=False)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    parser.set_defaults(func=lambda args: main(args.command))
    return parser
