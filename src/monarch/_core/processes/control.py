"""The socket pair between the agent and its spawner: whole messages, with descriptors, that never block the agent.

Each message is one of these records. The agent sends a `SpawnRequest`, which is answered with `Bound` or `Unstarted` for all of it,
then with `Forked` or `Unstarted` for each of its ranks; and `Kill`. The spawner says `Changed` by itself. There is no dead
receiver: the agent ends with its spawner, and the spawner with its agent.
"""

from __future__ import annotations

import os
import pickle
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..._namedtuple import NamedTuple

_INLINE = 8 * 1024  # a larger message travels as an anonymous file, so that any message fits the socket's buffer
_HERE, _IN_FILE = b"h", b"f"
_MAX_FDS = 8


class Kill(NamedTuple):
    """To the spawner: end a child that the agent could not take over."""

    pid: int


class Bound(NamedTuple):
    """To the agent: the addresses of these ranks of a mesh take connections."""

    mesh: str
    ranks: list[int]


class Forked(NamedTuple):
    """To the agent: a rank of a mesh has a process. Comes with its standard output, its standard error, and a pidfd."""

    mesh: str
    rank: int
    pid: int


class Unstarted(NamedTuple):
    """To the agent: these ranks of a mesh could not be started."""

    mesh: str
    ranks: list[int]
    error: str


class Changed(NamedTuple):
    """To the agent: a child was stopped, goes on, or has ended; `status` is as `os.waitpid` gives it."""

    pid: int
    status: int


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that keep message boundaries."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_message(sock: socket.socket, message: Any, fds: Sequence[int] = ()) -> None:
    """Send one object, and descriptors with it; blocks while the socket is full, unless it is non-blocking.

    Raises:
        ConnectionError: The other side is gone.
    """
    data = pickle.dumps(message)
    if len(data) <= _INLINE:
        socket.send_fds(sock, [_HERE + data], list(fds))
        return
    file = os.memfd_create("monarch-control", os.MFD_CLOEXEC)
    try:
        with open(os.dup(file), "wb") as stream:
            stream.write(data)
        socket.send_fds(sock, [_IN_FILE], [file, *fds])
    finally:
        os.close(file)


def receive_message(sock: socket.socket) -> tuple[Any, list[int]]:
    """The next object and its descriptors.

    Raises:
        EOFError: The other side is gone.
    """
    data, fds, _, _ = socket.recv_fds(sock, _INLINE + 1, _MAX_FDS, socket.MSG_CMSG_CLOEXEC)
    if not data:
        raise EOFError
    if data[:1] == _HERE:
        return pickle.loads(data[1:]), fds
    with open(fds[0], "rb") as stream:
        stream.seek(0)
        return pickle.load(stream), fds[1:]


class ControlQueue:
    """Sends without ever blocking: what the socket does not take waits until it is writable.

    Args:
        sock: The agent's end.
        watch: Called with the events to wait for, whenever those change.
    """

    def __init__(self, sock: socket.socket, watch: Callable[[int], None]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._watch = watch
        self._queue: deque[Any] = deque()

    def send(self, message: Any) -> None:
        self._queue.append(message)
        self.flush()

    def flush(self) -> None:
        while self._queue:
            try:
                send_message(self._sock, self._queue[0])
            except BlockingIOError:
                break
            except ConnectionError:  # the spawner is gone; the read side reports that
                self._queue.clear()
                return
            self._queue.popleft()
        self._watch(select.EPOLLIN | (select.EPOLLOUT if self._queue else 0))
