"""Bytes over one connected socket, plain or TLS, both ways at once, from any thread.

Writing: the calling thread writes itself when nothing is queued; bytes that the kernel does not
take are queued as they are, and the poller's thread goes on with them. Nothing blocks. Large chunks
are encrypted, or taken by the kernel, straight from their own memory; small ones under TLS are
joined to one record first. No thread writes more than `_TURN` bytes at once.

Reading: the poller's thread reads into one piece of scratch memory, or where the user wants it, and
hands it on. Under TLS, what OpenSSL has already taken from the socket will not make it readable
again, so it is always asked for more before the poller is.

OpenSSL forbids two threads in one session at a time: one lock per stream is held around each
operation, never around a callback. What ends a stream: `close`, or the end of the connection, which
`closed` is told of.
"""

from __future__ import annotations

import fcntl
import select
import socket
import ssl
import struct
import termios
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from ..._lazy import counted_logger
from ..wire.frame import Bytes
from .poller import READ, WRITE, Poller
from .scratch import scratch

_RECORD = 16 * 1024  # most that TLS puts into one record
# per call into OpenSSL, which has no scatter; interrupted, it must be repeated with the same
_TLS_WRITE = 16 * _RECORD
_TURN = 1024 * 1024  # bytes after which others have their turn
_MOST_CHUNKS = 64  # per sendmsg
_ACKNOWLEDGED_CHECK = 0.001  # seconds; the kernel does not tell when it has sent everything

logger = counted_logger("monarch.net")


class StreamEvents(Protocol):
    """Callbacks of a stream, on the poller's thread."""

    def answered(self) -> None:
        """The peer's host has taken a connection that we opened; proofs follow."""

    def ready(self) -> None:
        """The peer has proved who it is, and has let us in.

        The first of what every stream tells.
        """

    def data(self, chunk: memoryview) -> None:
        """Bytes, in order. The memory is used again after the return."""

    def closed(self, reason: str, final: bool) -> None:
        """The last of all; not after `ByteStream.close`. If `final`, to try again cannot help."""


class ByteStream:
    """One byte stream to an authenticated peer; made by `dial.connect` and `listener.listen`.

    Attributes:
        peer: Name of the other end, for messages.
        queued: Bytes that the kernel has not taken yet.
        on_drained: Called on the poller's thread when all that was queued has been written.
        space: Asked on the poller's thread where to read to, so that a large frame need not be
            copied; at least one TLS record. What `data` gets then lies there. None is scratch
            memory.
    """

    __slots__ = (
        "_broken", "_closed", "_events", "_lock", "_paused", "_poller", "_queue", "_read_wants_write", "_retry",
        "_sock", "_still_opening", "_unwatched", "_write_wants", "on_drained", "peer", "queued", "space",
    )  # fmt: skip

    def __init__(
        self, poller: Poller, peer: str, give_up: Callable[[], None] | None = None
    ) -> None:
        self.peer = peer
        self.on_drained: Callable[[], None] | None = None
        self.space: Callable[[], memoryview | None] | None = None
        self._poller = poller
        self._events: StreamEvents | None = None
        self._still_opening = give_up  # ends the attempt to connect
        self._sock: socket.socket | None = None  # once the peer is known
        self._lock = threading.Lock()
        self._queue: deque[memoryview] = deque()
        self.queued = 0
        self._retry: memoryview | None = None  # what OpenSSL has begun to write
        self._write_wants = WRITE  # what a write that could not go on waits for
        self._read_wants_write = False
        self._paused = False
        self._unwatched = False  # the connection has ended, but its user has paused it
        self._closed = False
        self._broken: str | None = None  # why writing failed; told when all has been read

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open" if self._sock is not None else "opening"
        return f"<ByteStream: {self.peer}, {state}, {self.queued} bytes queued>"

    def write(self, chunks: Sequence[Bytes]) -> None:
        """Send `chunks`, in order with all written before, from any thread; also before `ready`,
        and without effect once the stream has ended. Their memory must stay as it is until they are
        written. Never blocks.
        """
        with self._lock:
            if self._closed or self._broken is not None:
                return
            idle = not self._queue
            for chunk in chunks:
                view = memoryview(chunk)
                if view.nbytes:
                    self._queue.append(
                        # lengths are counted in bytes below
                        view if view.format == "B" and view.ndim == 1 else view.cast("B")
                    )
                    self.queued += view.nbytes
            # else the poller's thread writes, and the bytes queued before go first
            if idle and self._sock is not None:
                self._write_some()
                self._watch()

    def pause(self) -> None:
        """Stop reading until `resume`; a chunk that is already on its way may still come."""
        with self._lock:
            self._paused = True
            self._watch()

    def resume(self) -> None:
        with self._lock:
            if not self._paused:
                return
            self._paused = False
            self._watch()
        self._poller.call_soon(self._read)  # OpenSSL may have what the poller cannot see

    def close(self) -> None:
        """Close without a word to `closed`; queued bytes are lost, unless `flush` came first."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._drop_queue()
            sock, give_up = self._sock, self._still_opening
            self._sock = self._still_opening = None
            if sock is not None:
                self._poller.remove(sock.fileno())
                sock.close()
        if give_up is not None:
            give_up()

    def flush(self, timeout: float) -> bool:
        """Wait, on any thread, until the peer's host has all that was written.

        What ends the wait: that, the end of the stream, or `timeout` seconds; returns whether it
        was the first.
        """
        end = time.monotonic() + timeout
        while (sock := self._sock) is not None and self._broken is None:
            if not self._queue and not _unacknowledged(sock):
                return True
            left = end - time.monotonic()
            if left <= 0:
                break
            self._wait_writable(sock, left)
            with self._lock:
                self._write_some()
        return False

    # between its makers and itself

    def opened(self, sock: socket.socket, events: StreamEvents) -> None:
        """The peer is known: the stream can be used. On the poller's thread."""
        with self._lock:
            if self._closed:
                sock.close()
                return
            self._sock, self._events, self._still_opening = sock, events, None
            self._poller.add(sock.fileno(), self._ready, 0)
        # out of the lock: the user may write at once
        events.ready()
        with self._lock:
            self._write_some()
            self._watch()
        self._read()  # what came right behind the greeting may be in OpenSSL's hands

    def failed(self, reason: str, final: bool, events: StreamEvents) -> None:
        """The stream could not be made. On the poller's thread."""
        self._still_opening = None
        if not self._closed:
            self.close()
            events.closed(reason, final)

    # writing; with the lock held

    def _write_some(self) -> None:
        left = _TURN
        sock = self._sock
        while self._queue and left > 0 and sock is not None:
            try:
                sent = (
                    self._write_tls(sock)
                    if isinstance(sock, ssl.SSLSocket)
                    else sock.sendmsg(islice(self._queue, _MOST_CHUNKS))
                )
            except ssl.SSLWantReadError:
                # TLS may have to read before it can write, as when the peer renews its keys
                self._write_wants = READ
                return
            except (BlockingIOError, ssl.SSLWantWriteError):
                break
            except OSError as error:
                self._broken = f"it could not be written to: {error.strerror or error}"
                self._drop_queue()
                self._poller.call_soon(self._read)  # first what came before the end; it may say why
                return
            self.queued -= sent
            left -= sent
            self._drop(sent)
        self._write_wants = WRITE

    def _write_tls(self, sock: ssl.SSLSocket) -> int:
        if self._retry is None:
            if len(self._queue) > 1 and len(self._queue[0]) < _RECORD:
                # OpenSSL has no scatter: each call would make a record of its own, with its own
                # header and tag
                self._join_small()
            self._retry = self._queue[0][:_TLS_WRITE]
        sent = sock.send(self._retry)
        self._retry = None
        return sent

    def _join_small(self) -> None:
        """Make one chunk of those at the head that fit into one record."""
        parts, size = [], 0
        while self._queue and size + len(self._queue[0]) <= _RECORD:
            parts.append(self._queue.popleft())
            size += len(parts[-1])
        self._queue.appendleft(memoryview(b"".join(parts)))

    def _drop(self, sent: int) -> None:
        queue = self._queue
        while sent:
            head = queue[0]
            if sent < len(head):
                queue[0] = head[sent:]
                return
            sent -= len(head)
            queue.popleft()

    def _drop_queue(self) -> None:
        self._queue.clear()
        self.queued = 0
        self._retry = None

    def _watch(self) -> None:
        """Tell the poller what to wait for."""
        sock = self._sock
        if sock is None:
            return
        if self._unwatched:
            if self._paused:
                return
            self._unwatched = False
            self._poller.add(sock.fileno(), self._ready, 0)
        wants = 0 if self._paused else READ
        if self._read_wants_write and not self._paused:
            wants |= WRITE
        if self._queue:
            wants |= self._write_wants
        self._poller.modify(sock.fileno(), wants)

    def _wait_writable(self, sock: socket.socket, timeout: float) -> None:
        if not self._queue:
            time.sleep(min(_ACKNOWLEDGED_CHECK, timeout))
            return
        poll = select.poll()
        with self._lock:
            if self._sock is None:
                return
            poll.register(sock, select.POLLOUT if self._write_wants == WRITE else select.POLLIN)
        poll.poll(timeout * 1000)

    # reading, and the poller's thread

    def _ready(self, events: int) -> None:
        if self._queue:
            with self._lock:
                self._write_some()
                self._watch()
            if not self._queue and self.on_drained is not None:
                self.on_drained()
        if not self._paused:
            self._read()
        # the kernel reports these even where nothing is asked for
        elif events & (select.EPOLLHUP | select.EPOLLERR):
            self._leave_unwatched()

    def _leave_unwatched(self) -> None:
        """Leave the poller until the user resumes: it would report an end again and again."""
        with self._lock:
            if self._sock is not None and self._paused and not self._unwatched:
                self._unwatched = True
                self._poller.remove(self._sock.fileno())

    def _read(self) -> None:
        if self._paused or self._sock is None:
            return
        space = None if self.space is None else self.space()
        memory = scratch.memory if space is None else space[:_TURN]
        size, end = self._receive(memory)
        if size:
            self._hand_on(memory[:size])
        if end is not None:
            self._lost(end)
        elif size and self._sock is not None:
            self._read_on()

    def _hand_on(self, chunk: memoryview) -> None:
        try:
            if self._events is not None:
                self._events.data(chunk)
        except Exception:  # a bug in handling one chunk must not hide the end of the stream
            logger.exception("internal error in handling what %s sent; please report it", self.peer)

    def _read_on(self) -> None:
        """More may be in OpenSSL's hands; and a broken stream is read to its end."""
        sock = self._sock
        if self._broken is not None or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            self._poller.call_soon(self._read)

    def _receive(self, memory: memoryview) -> tuple[int, str | None]:
        """Fill `memory` with what there is; return its size, and why no more will come, if so."""
        size = 0
        with self._lock:
            sock = self._sock
            wanted_write, self._read_wants_write = self._read_wants_write, False
            try:
                while sock is not None and len(memory) - size >= _RECORD:
                    count = sock.recv_into(memory[size:])
                    if not count:
                        return size, self._broken or "it closed the connection"
                    size += count
                    # of TLS all is read: what OpenSSL has decrypted already, the poller does not
                    # see
                    if not isinstance(sock, ssl.SSLSocket):
                        break
            except ssl.SSLWantWriteError:
                self._read_wants_write = True
            except (BlockingIOError, ssl.SSLWantReadError):
                if self._broken is not None:
                    return size, self._broken
            except OSError as error:
                return size, self._broken or f"the connection broke: {error.strerror or error}"
            # only then: a read that changes nothing costs no system call
            if wanted_write != self._read_wants_write:
                self._watch()
        return size, None

    def _lost(self, reason: str) -> None:
        events = self._events
        if not self._closed:
            self.close()
            if events is not None:
                events.closed(reason, False)


def _unacknowledged(sock: socket.socket) -> int:
    """Bytes that the kernel has and the peer's host has not; of a Unix socket there are none: it is
    one kernel.
    """
    if sock.family == socket.AF_UNIX:
        return 0
    try:
        return int(struct.unpack("i", fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
    except (OSError, ValueError):  # closed meanwhile
        return 0
