"""Servers and doors that answer on a thread of their own, for the length of a block."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

S = TypeVar("S", bound=socketserver.BaseServer)


@contextmanager
def serving(server: S) -> Iterator[S]:
    """A server that answers; it is closed at the end."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def door_of_debugger(hub: Any, token: str) -> Iterator[tuple[str, int]]:
    """Where the debugger of this process listens, for this token."""
    from monarch.debugger import server

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server._Door(hub, listener, token).run, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            listener.shutdown(socket.SHUT_RDWR)
    thread.join()
