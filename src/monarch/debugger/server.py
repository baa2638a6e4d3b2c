"""A TCP port for the debugger, where Monarch's own variables ask for one.

It is for `nc`, and for old scripts.

A user who connects must first type the token that the client has printed. Then it is as at any
terminal.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import threading
import time
from contextlib import suppress

from .._core.plane import Hub
from .._listening import SharedListener, limit
from .._words import tame
from .console import Completer, Console, Terminal

_HOST = "MONARCH_DEBUG_SERVER_HOST"
_PORT = "MONARCH_DEBUG_SERVER_PORT"
_PROTOCOL = "MONARCH_DEBUG_SERVER_PROTOCOL"
_PATIENCE = 30.0  # seconds to type the token
_MOST = 8  # connections at a time
_MOST_STRANGERS = 64  # connections that have not typed it; one more turns the oldest away
_LONGEST_TOKEN = 1024  # bytes
_LARGEST_READ = 1 << 13  # bytes
_READS_WITHIN = 10  # seconds in which a connection must read output; otherwise it counts as gone
_AGAIN = 0.1  # seconds

_started = threading.Lock()


def start(hub: Hub) -> str | None:
    """Listen, if that is asked for and not done yet; what to tell the user of it."""
    if (_HOST not in os.environ and _PORT not in os.environ) or not _started.acquire(
        blocking=False
    ):
        return None
    if os.environ.get(_PROTOCOL, "tcp") != "tcp":
        return (
            f"monarch: {_PROTOCOL}={os.environ[_PROTOCOL]!r}: the debugger speaks tcp only, and"
            " does not listen"
        )
    host, port = os.environ.get(_HOST, "localhost"), os.environ.get(_PORT, "27000")
    try:
        listener = socket.create_server((host, int(port)))
    except (OSError, ValueError, OverflowError) as error:
        return f"monarch: the debugger can't listen at {host}:{port} ({_HOST}, {_PORT}): {error}"
    shared = SharedListener(listener.detach(), 2 * _MOST + _MOST_STRANGERS)
    token = secrets.token_urlsafe(24)
    threading.Thread(
        target=_Door(hub, shared, token).run, name="monarch-debugger-tcp", daemon=True
    ).start()
    host, port = shared.getsockname()[:2]
    return (
        f"monarch: the debugger listens at {host}:{port}; the first line to type there is this"
        f" token: {token}"
    )


class _Door:
    """Lets in users who type the token.

    Those that have not typed it yet take no room from those that have.

    Args:
        hub: That of the root client.
        listener: Where they connect.
        token: What they type.
    """

    def __init__(self, hub: Hub, listener: socket.socket, token: str) -> None:
        self._hub = hub
        self._listener = listener
        self._token = token
        self._room = threading.Semaphore(_MOST)
        self._strangers: dict[_Caller, None] = {}  # who has not typed the token; the oldest first

    def run(self) -> None:
        """Until the listener is closed."""
        while self._listener.fileno() >= 0:
            try:
                connection, _ = self._listener.accept()
            except ConnectionAbortedError:  # who has his share, or has gone again
                continue
            except OSError:  # this process has no descriptor left
                time.sleep(_AGAIN)
                continue
            caller = _Caller(connection)
            if len(self._strangers) >= _MOST_STRANGERS:
                for oldest in list(self._strangers)[:1]:
                    oldest.turn_away()
            self._strangers[caller] = None
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: _Caller) -> None:
        with caller.connection, suppress(OSError):
            try:
                typed = caller.first_line()
            finally:
                self._strangers.pop(caller, None)
            if not hmac.compare_digest(typed, self._token.encode()):
                caller.write("that is not the token which the client has printed\n")
            elif not self._room.acquire(blocking=False):
                caller.write(f"{_MOST} others are connected\n")
            else:
                with suppress(EOFError):
                    try:
                        Console(self._hub.root, caller, caller.has_left).run()
                    finally:
                        self._room.release()


class _Caller(Terminal):
    """A connection, as a terminal.

    Attributes:
        connection: It.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._typed = b""
        limit(connection, socket.SO_SNDTIMEO, _READS_WITHIN)

    def first_line(self) -> bytes:
        """Return the first line typed.

        Raises:
            TimeoutError: It did not come within `_PATIENCE` seconds.
        """
        end = time.monotonic() + _PATIENCE
        while b"\n" not in self._typed and len(self._typed) < _LONGEST_TOKEN:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self.connection.settimeout(left)
            if not self._receive():
                break
        self.connection.settimeout(None)
        line, _, self._typed = self._typed.partition(b"\n")
        return line.strip()

    def turn_away(self) -> None:
        """Have it read the end of the typed lines."""
        with suppress(OSError):  # it has gone
            self.connection.shutdown(socket.SHUT_RDWR)

    def has_left(self) -> bool:
        """Return whether all typed input has been read, and no more will come."""
        try:
            return not self._typed and not self.connection.recv(
                1, socket.MSG_PEEK | socket.MSG_DONTWAIT
            )
        except BlockingIOError:
            return False

    def read(self, prompt: str, complete: Completer) -> str:
        self.write(prompt)
        while b"\n" not in self._typed:
            if not self._receive():
                raise EOFError
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace").rstrip("\r")

    def write(self, text: str) -> None:
        self.connection.sendall(tame(text, True).encode(errors="replace"))

    def _receive(self) -> bytes:
        data = self.connection.recv(_LARGEST_READ)
        self._typed += data
        return data
