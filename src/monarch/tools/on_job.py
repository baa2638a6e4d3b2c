"""The commands that work on the job of the active context, as functions, with the names of 0.7.

Each is one of the command line: what it prints, and what it raises, is the same.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence

from . import contexts, jobs, shell
from .exec import run

context_create = contexts.create
context_ls = contexts.list_contexts
context_rm = contexts.rm
context_use = contexts.use
apply_job = jobs.apply


def exec_on_job(
    cmd: Sequence[str], run_all: bool = False, mesh_name: str | None = None, point_str: str | None = None,
    env: Sequence[str] | None = None, workdir: str | None = None, kill: bool = False, script: str | None = None,
    per_host: Mapping[str, int] | None = None,
) -> int:  # fmt: skip
    """Run a command on hosts of the current job; see ``monarch exec``.

    Args:
        cmd: The command and its arguments.
        run_all: On every host of every mesh.
        mesh_name: On every host of this mesh.
        point_str: On these hosts of the first mesh, such as ``hosts=1``.
        env: Variables for it, each ``NAME=VALUE``.
        workdir: Its working directory.
        kill: End the job afterwards.
        script: A file with a bash script to run.
        per_host: How often on each host, such as ``{"gpus": 8}``.

    Returns:
        The highest exit status; by default that on the first host of the first mesh.
    """
    sizes = ",".join(f"{name}={size}" for name, size in (per_host or {}).items()) or None
    return _status(
        lambda: run(
            list(cmd), everywhere=run_all, mesh=mesh_name, point=point_str, per_host=sizes,
            env=list(env or ()), workdir=workdir, script=script, kill=kill,
        )
    )  # fmt: skip


def shell_on_job(
    mesh_name: str | None = None, point_str: str | None = None, env: Sequence[str] | None = None,
    workdir: str | None = None, kill: bool = False,
) -> int:  # fmt: skip
    """Open a shell on a host of the current job; see ``monarch shell``.

    Args:
        mesh_name: A host of this mesh; the first by default.
        point_str: Which host, such as ``hosts=1``.
        env: Variables for it, each ``NAME=VALUE``.
        workdir: Its working directory.
        kill: End the job afterwards.

    Returns:
        The exit status of the shell.
    """
    return _status(lambda: shell.shell(mesh_name, point_str, list(env or ()), workdir, kill))


def _status(command: Callable[[], None]) -> int:
    try:
        command()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def debug(host: str, port: int) -> None:
    """Reach a debugger that listens on a TCP port, as netcat would; it asks for its token.

    Args:
        host: MONARCH_DEBUG_SERVER_HOST of the program.
        port: MONARCH_DEBUG_SERVER_PORT of the program.
    """
    with socket.create_connection((host, port)) as connection:
        typed = threading.Thread(target=_pass_on_input, args=(connection,), daemon=True)
        typed.start()
        while data := connection.recv(1 << 16):
            sys.stdout.write(data.decode(errors="replace"))
            sys.stdout.flush()


def _pass_on_input(connection: socket.socket) -> None:
    for line in sys.stdin:
        connection.sendall(line.encode())
