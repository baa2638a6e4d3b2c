"""The Unix socket at which a process listens, and who is let in.

The folder keeps other users out (see `unix`), so only our user, or root, can connect. Even so at
most `_ACCEPTS` are let in per turn: between them, connected processes are served. A caller that
goes without a greeting is no part of a program; after `_STRANGERS` of them the door stays shut for
a moment, so that the threads of this process get the interpreter lock while it is flooded.

When descriptors run out, some are in reserve, so that a process that has to stop this one, or to
inspect it, gets in. Those for whom there is none even then wait, and after `_SHORTAGE` are told why
they are not let in.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..._resources import Reserve, none_left
from ..wire.frame import encode, parting
from . import unix
from .poller import Poller, Timer

if TYPE_CHECKING:
    import logging

_ACCEPTS = 16  # in one turn
_STRANGERS, _STRANGERS_PAUSE = 64, 0.01  # after so many of them, so many seconds without accepting
_NO_DESCRIPTOR_PAUSE = 0.1  # seconds without accepting when descriptors have run out
# seconds without descriptors, and without letting a process in, after which those who wait are told
_SHORTAGE = 3.0
_WARNINGS, _WARNINGS_PERIOD = 10, 5.0  # at most so many, in so many seconds


class Door:
    """The accepting side of a listener: it lets in processes of this user.

    Args:
        listener: Listens already; owned by this object.
        let_in: Gets each connection from a process of our user, on the poller's thread.
    """

    def __init__(
        self,
        poller: Poller,
        listener: socket.socket,
        logger: logging.Logger,
        let_in: Callable[[socket.socket], None],
    ) -> None:
        self._poller = poller
        self._listener = listener
        self._let_in = let_in
        self._logger = logger
        self._warnings: Warnings | None = None
        self._closed = False
        self._reserve = Reserve()
        self._reserve.fill()
        self._short_since = 0.0
        self._strangers = 0
        self._open()

    def close(self) -> None:
        self._closed = True
        self._poller.remove(self._listener.fileno())
        self._listener.close()
        self._reserve.close()

    def abandon(self) -> None:
        """Let go of the parent's socket in a forked child, without touching what both share."""
        self._listener.close()
        self._reserve.close()

    def stranger_left(self) -> None:
        """A caller has gone without a greeting, or was sent away."""
        self._strangers += 1

    def warn(self, text: str) -> None:
        """Log who was not let in, and why."""
        self._warnings = self._warnings or Warnings(self._poller, self._logger)
        self._warnings.warn(text)

    def _open(self) -> None:
        if not self._closed:
            self._poller.add(self._listener.fileno(), self._accept)

    def _accept(self, events: int) -> None:
        if self._strangers >= _STRANGERS:
            self._strangers = 0
            self._pause(_STRANGERS_PAUSE)
            return
        for _ in range(_ACCEPTS):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                self._reserve.fill()
                return
            except OSError as error:  # out of descriptors
                self._short(error)
                return
            self._short_since = 0.0
            sock.setblocking(False)
            try:
                unix.check_peer(sock)
            except OSError as error:
                sock.close()
                self.warn(f"refused a connection: {error}")
                continue
            # a flood of connects and closes would else cost a `Connection` each
            if _has_left(sock):
                sock.close()
                self.stranger_left()
                continue
            unix.widen(sock)
            self._let_in(sock)

    def _short(self, error: OSError) -> None:
        """Give up some of the reserve; without, try again when descriptors may be free, and tell
        those who wait in the end.
        """
        self.warn(f"cannot accept connections for now: {error}")
        now = time.monotonic()
        self._short_since = self._short_since or now
        if len(self._reserve) > 1:
            self._reserve.give_up_one()  # still readable: the next turn lets one in
            return
        if now - self._short_since > _SHORTAGE and self._reserve.give_up_one():
            self._refuse()
            self._reserve.fill()
        self._pause(_NO_DESCRIPTOR_PAUSE)

    def _pause(self, seconds: float) -> None:
        self._poller.remove(self._listener.fileno())
        self._poller.call_later(seconds, self._open)

    def _refuse(self) -> None:
        """Tell all those who wait why they do."""
        told = encode(parting(none_left()))[0]
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock, suppress(OSError):
                unix.check_peer(sock)
                # a few bytes into an empty buffer: cannot block
                sock.send(told)
                # what it has sent may be unread, of which it would hear first
                sock.shutdown(socket.SHUT_WR)


def _has_left(sock: socket.socket) -> bool:
    """Return whether the other end has closed the connection without a word."""
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return False


class Warnings:
    """Writes the first few warnings of each period and a count of the rest: floods stay small."""

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
            self._logger.warning(
                "and %d more like these in the last %g seconds", self._left_out, _WARNINGS_PERIOD
            )
        self._written = self._left_out = 0
        self._period = None
