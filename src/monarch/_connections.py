"""The TCP connections of process groups, and how a rank breaks them.

`elastic.member` and `tensor_engine.groups` note the connections that a new group makes, and shut
them down when the group has lost a rank: the collectives in progress then fail, where they would
wait forever.

gloo has no abort; only a broken connection ends a collective. The death of a process breaks the
connections of its neighbours alone, and the loss of a machine breaks none. So each rank shuts down
its own.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_KNOCK = 1.0  # seconds to connect to this very process


class Connections:
    """The connections that this process makes over TCP in blocks of `made`."""

    def __init__(self) -> None:
        self._ours: dict[int, int] = {}
        self._before: dict[int, int] | None = None

    @contextmanager
    def made(self) -> Iterator[None]:
        """Track the groups made in this block; `shut_down` reaches them while it runs, too."""
        self._before = _sockets()
        try:
            yield
        finally:
            self._ours, self._before = self._known(), None

    def shut_down(self) -> None:
        """Shut connections down: readers and writers on both sides get an error.

        The descriptors remain with their owners.
        """
        for descriptor, inode in self._known().items():
            with suppress(OSError):  # closed meanwhile, or not connected
                _shut_down(descriptor, inode)

    def break_off(self, members: int) -> None:
        """Shut connections down, and end the wait for those that have yet to come.

        Each member of a gloo group waits for others to connect to it, without a way to break that
        off. A connecting peer names its member, by a number below that of the members; so this
        connects once for each of them. Whichever was awaited has come then, and is closed again.
        """
        for descriptor, inode in self._known().items():
            with suppress(OSError):
                _shut_down(descriptor, inode, members)

    def _known(self) -> dict[int, int]:
        before = self._before
        new = {} if before is None else dict(_sockets().items() - before.items())
        return self._ours | new


def _sockets() -> dict[int, int]:
    """Return the sockets of this process: descriptor to inode."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith("socket:["):
                found[int(name)] = int(target[8:-1])
    return found


def _shut_down(descriptor: int, inode: int, knocks: int = 0) -> None:
    """Shut down a connection through a copy of its descriptor.

    The number may belong to something else at any time. A listening socket is knocked at.
    """
    number = os.dup(descriptor)
    try:
        copy = socket.socket(fileno=number)
    except OSError:  # no socket
        os.close(number)
        raise
    with copy:
        if os.fstat(copy.fileno()).st_ino != inode or copy.family not in (
            socket.AF_INET,
            socket.AF_INET6,
        ):
            return
        # gloo ends the process when it can't accept
        if not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            copy.shutdown(socket.SHUT_RDWR)
            return
        address = copy.getsockname()[:2]
    for number in range(knocks):
        with socket.create_connection(address, _KNOCK) as visitor:
            visitor.sendall(struct.pack("=q", number))
