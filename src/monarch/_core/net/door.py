"""The Unix socket at which a process listens, and who is let in.

The folder keeps other users out (see `unix`), so whoever knocks is our user, or root. Even so at most `_ACCEPTS` are let in
per turn: between them, who has connected is served.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable

from . import unix
from .poller import Poller, Timer

_ACCEPTS = 16  # in one turn
_NO_DESCRIPTOR_PAUSE = 0.1  # seconds without accepting when descriptors have run out
_WARNINGS, _WARNINGS_PERIOD = 10, 5.0  # at most so many, in so many seconds


class Door:
    """Args:
    listener: Listens already; owned by this object.
    let_in: Gets each connection from a process of our user, on the poller's thread.
    """

    def __init__(
        self, poller: Poller, listener: socket.socket, logger: logging.Logger, let_in: Callable[[socket.socket], None]
    ) -> None:
        self._poller = poller
        self._listener = listener
        self._let_in = let_in
        self._logger = logger
        self._warnings: Warnings | None = None
        self._closed = False
        self._open()

    def close(self) -> None:
        self._closed = True
        self._poller.remove(self._listener.fileno())
        self._listener.close()

    def abandon(self) -> None:
        """In a forked child: let go of the parent's socket without touching what both share."""
        self._listener.close()

    def warn(self, text: str) -> None:
        """Log who was not let in, and why."""
        self._warnings = self._warnings or Warnings(self._poller, self._logger)
        self._warnings.warn(text)

    def _open(self) -> None:
        if not self._closed:
            self._poller.add(self._listener.fileno(), self._accept)

    def _accept(self, events: int) -> None:
        for _ in range(_ACCEPTS):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # out of descriptors: try again when some may be free
                self.warn(f"cannot accept connections for now: {error}")
                self._poller.remove(self._listener.fileno())
                self._poller.call_later(_NO_DESCRIPTOR_PAUSE, self._open)
                return
            sock.setblocking(False)
            try:
                unix.check_peer(sock)
            except OSError as error:
                sock.close()
                self.warn(f"refused a connection: {error}")
                continue
            unix.widen(sock)
            self._let_in(sock)


class Warnings:
    """Writes the first few warnings of each period, and how many there were more, so that a flood fills no disk."""

    def __init__(self, poller: Poller, logger: logging.Logger) -> None:
        self._poller = poller
        self._logger = logger
        self._written = 0
        self._left_out = 0
        self._period: Timer | None = None

    def warn(self, text: str) -> None:
        if self._period is None:
            self._period = self._poller.call_later(_WARNINGS_PERIOD, self._end_period)
        if self._written < _WARNINGS:
            self._written += 1
            self._logger.warning(text)
        else:
            self._left_out += 1

    def close(self) -> None:
        if self._period is not None:
            self._period.cancel()
            self._end_period()

    def _end_period(self) -> None:
        if self._left_out:
            self._logger.warning("and %d more like these in the last %g seconds", self._left_out, _WARNINGS_PERIOD)
        self._written = self._left_out = 0
        self._period = None
