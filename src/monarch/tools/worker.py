"""``monarch worker`` and ``monarch secret``: hosts that clients attach, and what lets them in."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from .. import trust
from ..config import configure
from ..errors import JobError
from ..job.base.worker_spec import WorkerSpec
from ..job.worker_main import serve
from .json_option import JSON, print_result, say

app = typer.Typer()


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
        # it would win over the file, and procs should inherit the secret in use
        os.environ.pop("MONARCH_SECRET", None)
        os.environ["MONARCH_SECRET_FILE"] = str(secret_file.expanduser().absolute())
    if idle_limit is not None:
        configure(worker_idle_limit=idle_limit)
    os.environ.pop("MONARCH_HOST", None)  # of the host of a job that this one is started on
    told = sys.stdout.fileno() if as_json else -1
    spec = WorkerSpec(
        "worker", "0", listen, report=told, folder=str(report or ""), lifeline=0 if lifeline else -1
    )
    try:
        serve(spec, ca=ca, private_key=private_key)
    except RuntimeError as error:  # it was ended in another way than by a client
        raise JobError(str(error)) from error


@app.command(epilog="Example: monarch secret ~/.monarch/secret")
def secret(
    path: Annotated[
        Path | None,
        typer.Argument(help="New file for it, readable by you alone. Default: print it."),
    ] = None,
    as_json: JSON = False,
) -> None:
    """Make a secret by which clients and workers let each other in."""
    if path is None:
        made = trust.make_secret()
        print_result({"secret": made} if as_json else made)
        return
    trust.write_secret_file(path)
    advice = (
        f"wrote {path}: copy it to every host, and set MONARCH_SECRET_FILE where it is not"
        " ~/.monarch/secret"
    )
    say(as_json, advice, path=str(path))
