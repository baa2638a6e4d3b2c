"""Futures whose answers come over a connection that nobody but their readers reads."""

from __future__ import annotations

import socket
import threading
from typing import Any

from monarch._core.calls.future import Future
from monarch._core.calls.pending import PendingOperation
from monarch._core.calls.promise import Promise
from monarch._core.net.connection import Connection
from monarch._core.net.poller import Poller
from monarch._core.wire.frame import REPLY, Frame, encode


class Over(PendingOperation):
    """An answer that comes over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def connection(self) -> Connection | None:
        return self._connection


class Wire:
    """A connection whose frames complete the future of that number.

    Its poller does not run, so whatever arrives was read by who waited for it.
    """

    def __init__(self) -> None:
        self.poller = Poller()
        sock, self.peer = socket.socketpair()
        sock.setblocking(False)
        self.arrived: list[tuple[int, int]] = []  # request, thread that read it
        self.connection = Connection(
            self.poller,
            sock,
            self._arrived,
            self._lost,
            limit=1 << 20,
            send_limit=1 << 20,
            send_timeout=1,
        )
        self.futures: list[Future[Any]] = [Promise(Over(self.connection)).future for _ in range(4)]

    def _arrived(self, connection: Connection, frame: Frame) -> None:
        self.arrived.append((frame.request, threading.get_ident()))
        Promise.of(self.futures[frame.request]).resolve(bytes(frame.payload))

    def _lost(self, connection: Connection, reason: str) -> None:
        for future in self.futures:
            Promise.of(future).reject(ConnectionError(reason))

    def answer(self, *requests: int) -> None:
        self.peer.sendall(
            b"".join(encode(Frame(REPLY, 0, 0, 0, 0, n, b"", b"answer"))[0] for n in requests)
        )

    def close(self) -> None:
        self.futures.clear()
        self.connection.close()
        self.peer.close()
        self.poller.close()
