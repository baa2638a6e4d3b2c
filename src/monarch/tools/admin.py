"""``monarch admin``: the admin interface of a running program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from ..admin.child import PROGRAM_ENDED
from ..admin.door import Door
from ..admin.keys import ACT, VIEW
from ..control import GetAdmin
from ..programs import PATIENCE, Connection
from .found import OPTION, PROGRAM, reach
from .json_option import JSON, print_result

ADDR = Annotated[
    str | None,
    typer.Option(
        help="Where to listen: host:port; port 0 is any. Default: the key mesh_admin_addr."
    ),
]
VIEW_ONLY = Annotated[
    bool, typer.Option("--view", help="Let in to look only: no stacks, profiles, ends of meshes.")
]
HOST_NAME = Annotated[
    list[str] | None, typer.Option(help="A name that a proxy in front of it has; again for more.")
]
ROOT_PATH = Annotated[str, typer.Option(help="The path that a proxy takes off: /monarch.")]

app = typer.Typer()


@app.command(epilog="Example: monarch admin 4711 --addr 127.0.0.1:1729")
def admin(
    program: PROGRAM = None,
    option: OPTION = None,
    addr: ADDR = None,
    view: VIEW_ONLY = False,
    token: Annotated[
        bool, typer.Option("--token", help="Print the token, for programs, in place of a link.")
    ] = False,
    host_name: HOST_NAME = None,
    root_path: ROOT_PATH = "",
    as_json: JSON = False,
) -> None:
    """Print a link that lets a browser in to a program, once.

    If the program has none, this opens one, and serves until the program ends, or Ctrl-C.
    """

    def show(access: dict[str, str]) -> None:
        print_result(access if as_json else access["token" if token else "link"])

    with reach(program, option) as connection:
        open_for(connection, VIEW if view else ACT, show, addr, host_name or (), root_path)


def open_for(
    connection: Connection,
    role: str,
    show: Callable[[dict[str, str]], object],
    addr: str | None,
    names: Sequence[str],
    root_path: str,
) -> None:
    """Show how to get into the admin interface of a program.

    If it has none, open one, and serve until the program ends, or Ctrl-C.

    Args:
        connection: To the program; is closed.
        role: Of who comes in.
        show: Is given the `access`.
        addr: See `Door`, as for the rest.
        names: See `Door`.
        root_path: See `Door`.
    """
    pid, access = find_access(connection, role)
    if access is not None:
        if addr is not None:
            typer.echo(f"the program has an admin interface already, at {access['url']}", err=True)
        show(access)
        return
    door = Door(pid, addr, names=names, root_path=root_path, at_once=True)
    serve(door, role, show, f"serving program {pid} at {door.url}, until it ends")
    if door.status == PROGRAM_ENDED:
        typer.echo(f"program {pid} has ended", err=True)


def serve(door: Door, role: str, show: Callable[[dict[str, str]], object], said: str) -> None:
    """Show how to get in, and serve until the program ends, or Ctrl-C.

    Args:
        door: What serves.
        role: Of who comes in.
        show: Is given the `access`.
        said: On stderr.
    """
    try:
        show(door.access(role))
        typer.echo(said, err=True)
        door.wait()
    except KeyboardInterrupt:
        pass
    finally:
        door.close()


def find_access(connection: Connection, role: str) -> tuple[int, dict[str, str] | None]:
    """The process of a program, and how to get into its admin interface; None if it has none.

    Args:
        connection: To the program; is closed.
        role: Of who comes in.
    """
    with connection:
        return connection.program.pid, connection.ask(connection.root, GetAdmin(role)).get(
            timeout=PATIENCE
        )
