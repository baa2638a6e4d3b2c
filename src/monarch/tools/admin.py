"""``monarch admin``: the admin interface of a running program."""

from __future__ import annotations

from typing import Annotated

import typer

from ..admin.door import PROGRAM_ENDED, Door
from ..admin.keys import ACT, VIEW
from ..control import GetAdmin
from ..programs import PATIENCE
from .programs import reach

app = typer.Typer()


@app.command(epilog="Example: monarch admin 4711 --addr 127.0.0.1:1729")
def admin(
    program: Annotated[
        str | None, typer.Argument(help="Process id of the program. Default: as for --program of other commands.")
    ] = None,
    addr: Annotated[
        str | None, typer.Option(help="Where to listen: host:port; port 0 is any. Default: the key mesh_admin_addr.")
    ] = None,
    view: Annotated[
        bool, typer.Option("--view", help="Let in to look only: no stacks, profiles, ends of meshes.")
    ] = False,
    token: Annotated[bool, typer.Option("--token", help="Print the token, for programs, in place of a link.")] = False,
    host_name: Annotated[
        list[str] | None, typer.Option(help="A name that a proxy in front of it has; again for more.")
    ] = None,
    root_path: Annotated[str, typer.Option(help="The path that a proxy takes off: /monarch.")] = "",
) -> None:
    """Print a link that lets a browser in, once, to the admin interface of a program.

    If the program has none, this opens one, and serves until the program ends, or Ctrl-C.
    """
    role = VIEW if view else ACT
    with reach(program) as connection:
        pid = connection.program.pid
        access = connection.ask(connection.root, GetAdmin(role)).get(timeout=PATIENCE)
    if access is not None:
        if addr is not None:
            typer.echo(f"the program has an admin interface already, at {access['url']}", err=True)
        print(access["token" if token else "link"])
        return
    door = Door(pid, addr, names=host_name or (), root_path=root_path)
    print(door.access(role)["token" if token else "link"], flush=True)
    typer.echo(f"serving program {pid} at {door.url}, until it ends", err=True)
    try:
        door.ended.wait()
    except KeyboardInterrupt:
        pass
    finally:
        door.close()
    if door.status == PROGRAM_ENDED:
        typer.echo(f"program {pid} has ended", err=True)
