"""The traffic of one process's sockets.

Each connection counts for itself, under locks it holds anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Protocol

from ..._namedtuple import NamedTuple


class Traffic(NamedTuple):
    """Counts of one connection, or of several."""

    messages_sent: int = 0
    bytes_sent: int = 0
    send_calls: int = 0
    messages_received: int = 0
    bytes_received: int = 0
    receive_calls: int = 0
    bytes_queued: int = 0


class Counted(Protocol):
    def traffic(self) -> Traffic: ...


class TrafficLog:
    """The open connections, and what those that are closed have counted. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[Counted] = set()
        self._past = Traffic()

    def opened(self, connection: Counted) -> None:
        with self._lock:
            self._open.add(connection)

    def closed(self, connection: Counted) -> None:
        with self._lock:
            if connection in self._open:
                self._open.remove(connection)
                self._past = _sum([self._past, connection.traffic()._replace(bytes_queued=0)])

    def total(self) -> tuple[Traffic, int]:
        """Return the traffic of open and closed connections, and how many are open."""
        with self._lock:
            return _sum([self._past, *(connection.traffic() for connection in self._open)]), len(
                self._open
            )


def _sum(parts: Iterable[Traffic]) -> Traffic:
    return Traffic(*map(sum, zip(*parts, strict=True)))
