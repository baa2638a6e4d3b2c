"""A TCP port for the debugger, where the environment asks for one with Monarch's own variables: for `nc`, and old scripts.

Whoever connects must first type the token that the client has printed. Then it is as at any terminal.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import threading
from contextlib import suppress

from .._core.plane import Hub
from .console import Console, PlainTerminal

_HOST = "MONARCH_DEBUG_SERVER_HOST"
_PORT = "MONARCH_DEBUG_SERVER_PORT"
_PROTOCOL = "MONARCH_DEBUG_SERVER_PROTOCOL"
_PATIENCE = 30.0  # seconds in which the token is to be typed
_MOST = 8  # connections at a time

_started = threading.Lock()


def start(hub: Hub) -> str | None:
    """Listen, if that is asked for and not done yet; what to tell the user of it."""
    if (_HOST not in os.environ and _PORT not in os.environ) or not _started.acquire(blocking=False):
        return None
    if os.environ.get(_PROTOCOL, "tcp") != "tcp":
        return f"monarch: {_PROTOCOL}={os.environ[_PROTOCOL]!r}: the debugger speaks tcp only, and does not listen"
    host, port = os.environ.get(_HOST, "localhost"), os.environ.get(_PORT, "27000")
    try:
        listener = socket.create_server((host, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        return f"monarch: the debugger can't listen at {host}:{port} ({_HOST}, {_PORT}): {error}"
    token = secrets.token_urlsafe(24)
    threading.Thread(target=_accept, args=(hub, listener, token), name="monarch-debugger-tcp", daemon=True).start()
    host, port = listener.getsockname()[:2]
    return f"monarch: the debugger listens at {host}:{port}; the first line to type there is this token: {token}"


def _accept(hub: Hub, listener: socket.socket, token: str) -> None:
    room = threading.Semaphore(_MOST)
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        if room.acquire(blocking=False):
            threading.Thread(target=_serve, args=(hub, connection, token, room), daemon=True).start()
        else:
            connection.close()


def _serve(hub: Hub, connection: socket.socket, token: str, room: threading.Semaphore) -> None:
    with room, connection, suppress(OSError, ValueError):
        connection.settimeout(_PATIENCE)
        with connection.makefile("r", encoding="utf-8", errors="replace", newline="\n") as lines:
            typed = lines.readline(1024).strip()
            if not hmac.compare_digest(typed.encode(), token.encode()):
                connection.sendall(b"that is not the token which the client has printed\n")
                return
            connection.settimeout(None)
            with connection.makefile("w", encoding="utf-8") as out:
                Console(hub.root, PlainTerminal(lines, out)).run()
