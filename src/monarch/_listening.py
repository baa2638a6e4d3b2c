"""Listening sockets at which other users of the machine can't take all places."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from ._core.plane import Who, user_at, who_at

__all__ = ["Refusals", "SharedListener", "Who", "has_room", "is_ours", "limit", "who_at"]


def is_ours(peer: tuple[str, int], own: tuple[str, int]) -> bool:
    """Return whether a process of our user on this machine is at the other end of a connection.

    Args:
        peer: The address of the other end.
        own: The address of this one.
    """
    return user_at(peer, own) == os.geteuid()


def has_room(who: Who, present: Sequence[Who], most: int) -> bool:
    """Return whether one more may come: a quarter of the places is for our user alone.

    Another user, or an address of another machine, has a quarter of them at most.

    Args:
        who: Comes.
        present: Members: one for each place that is taken.
        most: How many places there are.
    """
    ours, share = os.geteuid(), most // 4
    others = len(present) - present.count(ours)
    within = who == ours or (present.count(who) < share and others < most - share)
    return within and len(present) < most


def limit(connection: socket.socket, what: int, seconds: int) -> None:
    """Set SO_SNDTIMEO or SO_RCVTIMEO; 0 seconds: none."""
    connection.setsockopt(socket.SOL_SOCKET, what, struct.pack("ll", seconds, 0))


class Refusals:
    """Counts, and says which to tell of: the first, and whenever there have been twice as many.

    A web page may try all day.

    Attributes:
        count: How many there were.
    """

    def __init__(self) -> None:
        self.count = 0

    def next_is_told(self) -> bool:
        """Count one more, and return whether to tell of it."""
        self.count += 1
        return not self.count & (self.count - 1)


class SharedListener(socket.socket):
    """A listening socket that closes the connections of those who have their share.

    Its `accept` raises `ConnectionAbortedError` then, which event loops expect of it.

    Args:
        listener: A descriptor, which is owned by this object from then on.
        most: Connections at a time.
    """

    __slots__ = ("_held", "_most")

    def __init__(self, listener: int, most: int) -> None:
        super().__init__(fileno=listener)
        self._most = most
        self._held: WeakKeyDictionary[socket.socket, Who] = WeakKeyDictionary()

    def accept(self) -> tuple[socket.socket, object]:
        """Accept a connection.

        Raises:
            ConnectionAbortedError: It was closed again.
        """
        sock, address = super().accept()
        try:
            who = who_at(sock)
            present = [each for other, each in self._held.items() if other.fileno() >= 0]
            if not has_room(who, present, self._most):
                raise ConnectionAbortedError(errno.ECONNABORTED, f"{who} has {len(present)} others")
        except OSError as error:  # or it has gone again
            sock.close()
            raise ConnectionAbortedError(*error.args) from None
        self._held[sock] = who
        return sock, address
