"""Unix sockets in Linux's abstract namespace, where both sides check that the other runs as the same user."""

from __future__ import annotations

import os
import socket
import struct

from ..wire.address import ProcAddress

_CREDENTIALS = struct.Struct("3i")
BUFFER_SIZE = 4 * 1024 * 1024
BACKLOG = 4096


class PeerRefused(ConnectionError):
    """The other side of a connection runs as another user."""


def listen(address: ProcAddress) -> socket.socket:
    """A listening socket under the address's name, which nobody can take over while it lives.

    Raises:
        OSError: Somebody has that name, or no descriptor is left.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address.socket_name)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(address: ProcAddress) -> socket.socket:
    """Connect to a process on this host.

    Raises:
        ConnectionRefusedError: Nobody listens there: not yet, or no longer.
        BlockingIOError: Its backlog is full; try again.
        PeerRefused: It runs as another user.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:
        sock.connect(address.socket_name)
        check_peer(sock)
    except BaseException:
        sock.close()
        raise
    widen(sock)
    return sock


def widen(sock: socket.socket) -> None:
    """Ask for buffers that hold a burst of messages; the kernel may give less."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_SIZE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_SIZE)


def check_peer(sock: socket.socket) -> int:
    """The peer's process id.

    Raises:
        PeerRefused: The peer runs as another user.
    """
    pid, uid, _ = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if uid != os.geteuid():
        raise PeerRefused(f"process {pid} runs as user {uid}, not as user {os.geteuid()}")
    return int(pid)
