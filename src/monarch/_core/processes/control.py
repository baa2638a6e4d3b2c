"""The socket pair between agent and spawner: whole messages, which never block the agent.

Each message is one of these records. The agent sends a `SpawnRequest`, which is answered with
`Bound` or `Unstarted` for all of it, then with `Forked` or `Unstarted` for each of its ranks; and
`Kill`. The spawner says `Changed` by itself. There is no dead receiver: the agent ends with its
spawner, and the spawner with its agent.

A large message is several pieces on the socket. None of them needs a descriptor, so a process that
has run out of those can still say so.
"""

from __future__ import annotations

import pickle
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..._namedtuple import NamedTuple

_PIECE = 32 * 1024  # bytes; several fit into the socket's buffer
_LAST, _MORE = b"l", b"m"
_MAX_FDS = 8


class Kill(NamedTuple):
    """To the spawner: end a child that the agent could not take over."""

    pid: int


class Bound(NamedTuple):
    """To the agent: the addresses of these ranks of a mesh take connections."""

    mesh: str
    ranks: list[int]


class Forked(NamedTuple):
    """To the agent: a rank of a mesh has a process.

    Comes with its standard output, its standard error, and a pidfd.
    """

    mesh: str
    rank: int
    pid: int


class Unstarted(NamedTuple):
    """To the agent: these ranks of a mesh could not be started."""

    mesh: str
    ranks: list[int]
    error: str


class Changed(NamedTuple):
    """Tell the agent that a child was stopped, goes on, or ended; `status` is of `os.waitpid`."""

    pid: int
    status: int


def control_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets that keep message boundaries."""
    # not a stream: descriptors come with exactly the piece that they were sent with
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send_message(sock: socket.socket, message: Any, fds: Sequence[int] = ()) -> None:
    """Send one object with descriptors; blocks while the socket is full, unless non-blocking.

    Raises:
        ConnectionError: The other side is gone.
    """
    *most, last = _pieces(message)
    for piece in most:
        sock.send(piece)
    # with the last piece: the receiver takes descriptors with the message that they belong to
    socket.send_fds(sock, [last], list(fds))


def _pieces(message: Any) -> list[bytes]:
    data = pickle.dumps(message)
    ends = range(_PIECE, len(data), _PIECE)
    return [*(_MORE + data[end - _PIECE : end] for end in ends), _LAST + data[len(ends) * _PIECE :]]


class ControlReader:
    """Takes whole messages from the socket.

    Args:
        sock: Either end.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._begun: list[bytes] = []

    def receive(self) -> tuple[Any, list[int]]:
        """The next object and its descriptors; fewer than were sent, if this process has no room.

        Raises:
            BlockingIOError: It is not all there yet, and the socket is non-blocking.
            EOFError: The other side is gone.
        """
        while True:
            data, fds, _, _ = socket.recv_fds(
                self._sock, _PIECE + 1, _MAX_FDS, socket.MSG_CMSG_CLOEXEC
            )
            if not data:
                raise EOFError
            self._begun.append(data[1:])
            if data[:1] == _LAST:
                pieces, self._begun = self._begun, []
                return pickle.loads(b"".join(pieces)), fds


class ControlQueue:
    """Sends without ever blocking: pieces that the socket does not take wait until it is writable.

    Args:
        sock: The agent's end.
        watch: Called with the events to wait for, whenever those change.
    """

    def __init__(self, sock: socket.socket, watch: Callable[[int], None]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._watch = watch
        self._queue: deque[bytes] = deque()  # pieces

    def send(self, message: Any) -> None:
        self._queue.extend(_pieces(message))
        self.flush()

    def flush(self) -> None:
        while self._queue:
            try:
                self._sock.send(self._queue[0])
            except BlockingIOError:
                break
            except ConnectionError:  # the spawner is gone; the read side reports that
                self._queue.clear()
                return
            self._queue.popleft()
        self._watch(select.EPOLLIN | (select.EPOLLOUT if self._queue else 0))
