"""``monarch sync``: bring the code of this machine to the hosts of a running job."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SyncError
from ..job.base import telemetry
from ..job.base.code import Synchronizer
from ..sync import SyncResult, Workspace
from .found import CONTEXT, running
from .json_option import JSON, print_result

_LOOK_AGAIN = 0.3  # seconds between two looks at the folders; each takes some 5 µs for a file

app = typer.Typer()


@app.command(epilog="Example: monarch sync --watch --reload")
def sync(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            help=(
                "A folder; or several, each under its own name. Default: as last time; else this"
                " one."
            )
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on: sync again whenever a file changes.")
    ] = False,
    reload: Annotated[
        bool, typer.Option("--reload", help="Have procs that run reload modules that have changed.")
    ] = False,
    context: CONTEXT = None,
    as_json: JSON = False,
) -> None:
    """Bring folders of this machine to all hosts of a running job.

    Only changes are sent, and they take effect as a whole.

    Procs that start there afterwards import from it. `.gitignore` and `.monarchignore` list the
    exclusions.
    """
    saved = running(context)
    named = folders[0] if folders and len(folders) == 1 else folders
    workspace = Workspace.of(named or saved._workspace)
    telemetry.look_on()
    synchronizer = Synchronizer(saved, saved.state(None)._hosts, workspace, every_program=True)
    _show(synchronizer.sync(reload), as_json)
    said = ""
    while watch:
        try:
            time.sleep(_LOOK_AGAIN)
            if synchronizer.has_changed():
                _show(synchronizer.sync(reload), as_json)
            said = ""
        except KeyboardInterrupt:  # the way to end it
            return
        except (OSError, SyncError, ValueError) as error:  # the next save may mend it
            if str(error) != said:
                said = str(error)
                print(said, file=sys.stderr, flush=True)


def _show(result: SyncResult, as_json: bool) -> None:
    if as_json:
        reloads = [each._asdict() for each in result.reloads]
        print_result({**result._asdict(), "reloads": reloads})
    else:
        print(result, flush=True)
