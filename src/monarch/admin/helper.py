"""The helper process: connects to the program, and serves until that ends."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable

import uvicorn

from .. import config
from .._listening import Refusals, SharedListener
from . import api, child, front, logs, more, runs, trace, v1
from . import connection as http
from .app import App
from .child import PROGRAM_ENDED
from .guard import Guard
from .keys import Keys
from .program import WatchedProgram, reach

TABLES = (api, front, logs, more, runs, trace, v1)
"""The modules with routes; those of the first win."""

_NOT_NOW = 4  # the status of a helper to which the program did not answer
_LOOK_AGAIN = 5.0  # seconds
_BEAT = 0.05  # seconds
_MOST = 256  # connections at a time
_SHUTDOWN = 3  # seconds for requests that are being answered when the program ends


def main(reach: child.Reach = reach) -> None:
    """Serve as the first line of standard input says, until standard input ends, or the program.

    Args:
        reach: Finds the program to serve, as that line says.
    """
    gc.set_threshold(child.MADE)
    logging.basicConfig(level=logging.WARNING, format="monarch admin: %(message)s")
    logging.getLogger("uvicorn.error").addFilter(_Counted())
    told = json.loads(sys.stdin.readline())
    # the thread that has started this is that of the door, which waits for its end
    child.die_with(told["parent"])
    config.inherit(told["config"])
    listener = SharedListener(told["listener"], _MOST)
    try:
        program = reach(told)
    except ValueError as error:  # there is no such program any more
        print(f"monarch admin: {error}", file=sys.stderr)
        sys.exit(PROGRAM_ENDED)
    except ConnectionError as error:
        print(f"monarch admin: {error}", file=sys.stderr)
        sys.exit(_NOT_NOW)
    cert, key = told["tls"]
    keys = Keys(bytes.fromhex(told.pop("secret")), told["program"], told["since"])
    child.begin(reach, told)
    doors = Guard(keys, told["names"])
    app = App(program, doors, config.value("mesh_admin_max_concurrent_resolves"))
    server = uvicorn.Server(
        uvicorn.Config(
            app, http=http.ServerConnection, ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
            proxy_headers=False, root_path=told["root_path"], timeout_graceful_shutdown=_SHUTDOWN,
            ssl_certfile=cert or None, ssl_keyfile=key or None,
        )
    )  # fmt: skip
    asyncio.run(_serve(server, listener, app, program, told["idle"]))
    # threads may wait for a program that is gone
    os._exit(PROGRAM_ENDED if program.ended.is_set() else 0)


class _Counted(logging.Filter):
    """Tells of requests that are none as `Refusals` says; of errors of ours each time."""

    def __init__(self) -> None:
        super().__init__()
        self._refusals = Refusals()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to tell it."""
        if record.levelno > logging.WARNING:
            return True
        told, count = self._refusals.next_is_told(), self._refusals.count
        record.msg, record.args = f"{record.getMessage()} ({count} such so far)", None
        return told


async def _serve(
    server: uvicorn.Server, listener: SharedListener, app: App, program: WatchedProgram, idle: float
) -> None:
    """Serve until the program or the parent process ends, or this is not needed any more."""
    loop = asyncio.get_running_loop()

    def over() -> None:
        app.end()
        server.should_exit = True

    def wait(until: Callable[[], object]) -> None:
        until()
        program.ended.set()
        loop.call_soon_threadsafe(over)

    for until in (program.wait, sys.stdin.read):
        threading.Thread(target=wait, args=(until,), daemon=True).start()
    serving = asyncio.ensure_future(server.serve([listener]))
    while not serving.done():
        await asyncio.wait([serving], timeout=min(idle, _LOOK_AGAIN))
        if server.started and not needed(_busy(server), program, app.last_asked + idle):
            for each in server.servers:
                each.close()  # who comes from now on waits for the next helper
            end = time.monotonic() + _SHUTDOWN
            while _busy(server) and time.monotonic() < end:  # who has come just before
                await asyncio.sleep(_BEAT)
            server.should_exit = True
            await serving
    serving.result()


def needed(busy: bool, program: WatchedProgram, until: float) -> bool:
    """Return whether the process must go on.

    Args:
        busy: There is a connection.
        program: A client that has sent snapshots of it finds them when it comes again, however
            late.
        until: When it ends without another request, as `time.monotonic` counts.
    """
    return busy or bool(program.snapshots) or time.monotonic() <= until


def _busy(server: uvicorn.Server) -> bool:
    """Return whether a client is connected, or is being answered."""
    return bool(server.server_state.connections or server.server_state.tasks)
