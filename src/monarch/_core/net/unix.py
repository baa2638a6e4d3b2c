"""Unix sockets in a private folder, where both sides check the user of the other.

Each host of a program has a folder, ``/tmp/monarch-HOST``, so a reference is enough to find the
way. The kernel keeps other users out of it: they can neither connect, nor take the name of a
process that has died. In the abstract namespace they could do both, and no secret name would help,
as anybody may list them in ``/proc/net/unix``. Not in ``$XDG_RUNTIME_DIR``, which is emptied when
the user logs out, nor by preference in ``/dev/shm``, which may be, too: programs run on.

The agent, and the process that started it, remove the folder when they end. An agent that was
killed has the spawner for that, and a client that was killed the agent, which is there before the
folder is. Folders left behind when all were killed at once are removed by the next agent of this
user.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..._ours import is_private, opened
from ..wire.address import AGENT, CLIENT, ProcAddress

_CREDENTIALS = struct.Struct("3i")
BUFFER_SIZE = 4 * 1024 * 1024
BACKLOG = 4096
PLACES = "/tmp", "/dev/shm"  # the second where the first is full, or can't be written
_PREFIX = "monarch-"
MEETING = ".meeting"  # ends the name of a file at which the ranks of a mesh find each other
_YOUNG = 60.0  # seconds in which a folder without a listener may be about to get one


class PeerRefused(ConnectionRefusedError):
    """The other side of a connection runs as another user; the wanted one does not listen."""


@contextmanager
def closed_on_error(sock: socket.socket) -> Iterator[socket.socket]:
    """Close a socket if the block raises."""
    try:
        yield sock
    except BaseException:
        sock.close()
        raise


def unbound() -> socket.socket:
    """A socket for `listen`."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def listens(fd: int) -> bool:
    """Return whether `listen` was called for a socket, by whichever process has it."""
    # of a duplicate, which the block closes: the caller keeps its own
    with socket.socket(fileno=os.dup(fd)) as sock:
        return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def listen(address: ProcAddress, listener: socket.socket | None = None) -> socket.socket:
    """A listening socket under the address's name, which no process can take over while it lives.

    Args:
        listener: The socket to use, which another process may have already.

    Raises:
        OSError: That name is in use, or no descriptor is left.
    """
    listener = listener or unbound()
    try:  # not `closed_on_error`, which takes calls: each proc does this at its start
        listener.setblocking(False)
        listener.bind(f"{_folder(address.host) or _make_folder(address.host)}/{address.proc}")
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(address: ProcAddress) -> socket.socket:
    """Connect to a process on this host.

    Raises:
        ConnectionRefusedError: Nothing listens there: not yet, or no longer.
        BlockingIOError: Its backlog is full; try again.
        PeerRefused: It runs as another user.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    try:  # as above
        sock.connect(path_of(address))
        check_peer(sock)
    except FileNotFoundError:
        sock.close()
        raise _nothing_listens() from None
    except BaseException:
        sock.close()
        raise
    widen(sock)
    return sock


def path_of(address: ProcAddress) -> str:
    """The path at which a process listens, or would.

    Raises:
        ConnectionRefusedError: None of our user's do, on that host.
    """
    folder = _folder(address.host)
    if folder is None:
        raise _nothing_listens()
    return f"{folder}/{address.proc}"


def release(address: ProcAddress) -> None:
    """Free the name of a process that has ended, for the next of that name."""
    with suppress(OSError):
        os.unlink(path_of(address))


def release_all(host: str) -> None:
    """Remove the sockets of a host of this machine that has ended, or is about to be ended."""
    for folder in filter(is_private, _folders(host)):
        _remove(folder)


def release_abandoned() -> None:
    """Remove the folders of programs that were killed with all processes at once."""
    before = time.time() - _YOUNG
    for folder in _our_folders():
        with suppress(OSError):
            if os.stat(folder).st_mtime < before and not _in_use(folder):
                _remove(folder)


def hosts_here() -> list[tuple[str, int, float, bool]]:
    """The hosts of this user on this machine with an agent that listens: name, process that started
    it (0 if in another namespace), when (seconds since 1970), and whether that is a worker.
    """
    found = []
    for folder in _our_folders():
        with suppress(OSError):  # of a program that has ended meanwhile
            found.append((folder.rpartition(_PREFIX)[2], *_agent_in(folder)))
    return found


def _our_folders() -> Iterator[str]:
    """The folders of all hosts of this user on this machine."""
    for place in PLACES:
        with suppress(OSError):
            for name in os.listdir(place):
                before, _, host = name.partition(_PREFIX)  # planes' folders have one dash more
                if not before and host.isalnum() and is_private(folder := f"{place}/{name}"):
                    yield folder


def _agent_in(folder: str) -> tuple[int, float, bool]:
    path = f"{folder}/{AGENT}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        probe.connect(path)
        # who began to listen is who has started it
        pid, since = check_peer(probe), os.stat(path).st_ctime
    # a worker has no socket of its own
    return pid, since, not any(name.startswith(f"{CLIENT}{pid}-") for name in os.listdir(folder))


def _folder(host: str) -> str | None:
    """The folder of a host, None if there is none of ours.

    Looked up each time: a process connects to another once.
    """
    return next(filter(is_private, _folders(host)), None)


def _folders(host: str) -> list[str]:
    return [f"{place}/{_PREFIX}{host}" for place in PLACES]


def _make_folder(host: str) -> str:
    first, second = _folders(host)
    try:
        os.mkdir(first, 0o700)
    except OSError:
        os.mkdir(second, 0o700)
        return second
    return first


def _in_use(folder: str) -> bool:
    for name in (each for each in os.listdir(folder) if not each.endswith(MEETING)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            error = probe.connect_ex(path := f"{folder}/{name}")
        # the kernel refuses only where no process has the listening socket any more
        if error != errno.ECONNREFUSED or not stat.S_ISSOCK(os.lstat(path).st_mode):  # not a host's
            return True
    return False


def _remove(folder: str) -> None:
    with suppress(OSError), opened(folder) as ours:
        for name in ours.names():
            found = ours.status(name)
            if found is not None and (stat.S_ISSOCK(found.st_mode) or name.endswith(MEETING)):
                ours.remove(name)
        os.rmdir(folder)


def _nothing_listens() -> ConnectionRefusedError:
    return ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


def widen(sock: socket.socket) -> None:
    """Ask for buffers that hold a burst of messages; the kernel may give less."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_SIZE)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_SIZE)


def check_peer(sock: socket.socket) -> int:
    """The peer's process id.

    Raises:
        PeerRefused: The peer runs as another user.
    """
    pid, uid = credentials(sock)
    if uid != os.geteuid():
        raise PeerRefused(f"process {pid} runs as user {uid}, not as user {os.geteuid()}")
    return pid


def credentials(sock: socket.socket) -> tuple[int, int]:
    """The process and the user at the other end of a Unix socket."""
    told = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(told)
    return pid, uid
