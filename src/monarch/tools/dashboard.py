"""``monarch dashboard``: the pages of a program, running or kept in a file, in a browser."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from ..admin.door import Door
from ..admin.keys import ACT, VIEW
from ..errors import SupervisionError
from ..programs import Program, connect, find
from ..telemetry.run_file import RunFile
from .admin import ADDR, HOST_NAME, ROOT_PATH, VIEW_ONLY, find_access, open_for, serve
from .found import OPTION, found
from .json_option import JSON, print_result

app = typer.Typer()


@app.command(epilog="Example: monarch dashboard 4711 --addr 127.0.0.1:8265")
def dashboard(
    program: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROGRAM|URL]",
            help="As PROGRAM of `monarch why`, or the URL of its admin interface.",
        ),
    ] = None,
    option: OPTION = None,
    addr: ADDR = None,
    view: VIEW_ONLY = False,
    browser: Annotated[
        bool | None,
        typer.Option(help="Open it in a browser. Default: where there is a display to open it on."),
    ] = None,
    host_name: HOST_NAME = None,
    root_path: ROOT_PATH = "",
    as_json: JSON = False,
) -> None:
    """Open the dashboard of a program, or print the link to it.

    The link lets a browser in, once, within an hour.

    It shows faults, their places and causes: the verdict, each rank, stacks, waits, logs. If the
    program has no admin interface, this opens one, and serves until the program ends, or Ctrl-C. A
    program that has ended is looked at by the file that it has left, run.duckdb: as it was at that
    moment.
    """
    role = VIEW if view else ACT
    wanted = _has_display() if browser is None else browser

    def show(access: dict[str, str]) -> None:
        print_result({"link": access["link"]} if as_json else access["link"])
        if wanted:
            webbrowser.open(access["own_link"])  # its command line is seen by other users

    if program is not None and "://" in program:
        show(_access(program, role))
        return
    what = found(program, option)
    if isinstance(what, Program):
        open_for(connect(what), role, show, addr, host_name or (), root_path)
        return
    serve_run(what, role, show, addr, host_name or (), root_path)


def serve_run(
    file: Path,
    role: str,
    show: Callable[[dict[str, str]], object],
    addr: str | None,
    names: Sequence[str] = (),
    root_path: str = "",
) -> None:
    """Serve the file of a run until Ctrl-C; for the arguments see `open_for`."""
    _ = RunFile(file).schema  # raises here if it is no file of a run
    helper, more = "monarch.admin.saved_helper", {"run": os.path.abspath(file)}
    door = Door(
        os.getpid(), addr, names=names, root_path=root_path, at_once=True, helper=helper, more=more
    )
    serve(door, role, show, f"serving {file} at {door.url}; Ctrl-C ends it")


def _has_display() -> bool:
    return "SSH_CONNECTION" not in os.environ and bool(
        {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    )


def _access(url: str, role: str) -> dict[str, str]:
    """How to get into the program of this machine that has its admin interface there.

    Raises:
        ValueError: There is none, or it is no URL.
    """
    wanted = urlsplit(url)
    if wanted.scheme not in ("http", "https") or not wanted.netloc:
        raise ValueError(f"a URL is http://host:port, as `monarch admin` prints it, not {url!r}")
    for program in find():
        with suppress(ConnectionError, SupervisionError, TimeoutError):
            _, access = find_access(connect(program), role)
            if access is not None and urlsplit(access["url"])[:2] == wanted[:2]:
                return access
    raise ValueError(
        f"no program of yours on this machine has its admin interface at {url}: `monarch dashboard`"
        " there prints a link to it"
    )
