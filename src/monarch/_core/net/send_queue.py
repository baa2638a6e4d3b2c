"""The sending side of a connection, for any thread.

The calling thread writes to the socket itself when nothing is queued (no thread switch, one
syscall). Bytes that the kernel does not take are copied and queued, and the poller's thread writes
them when the socket drains. A thread that has made the queue longer than `send_limit` waits, which
is how a slow receiver slows its senders. What ends that wait: the queue drains, the connection
closes, or `send_timeout` passes.

Buffers in shared memory take no room in the socket, so the kernel would take thousands of segments.
Each side therefore counts the bytes that the other has not read, which that reports once per
`SEGMENT_CREDIT` bytes, of answers less often (see `connection`); a sender that makes it too many
waits, as for the queue. Its own message has been sent by then.
"""

from __future__ import annotations

import array
import errno
import os
import select
import socket
import threading
import time
from collections import deque
from itertools import islice

from ...errors import BackpressureError
from ..wire.frame import Bytes, decode, encode
from .loan import Lendable, Readiness
from .segment import Segment, map_segment

_MAX_CHUNKS = 64  # per sendmsg; the kernel allows 1024


class SendQueue(Lendable):
    """The frames that wait for one socket, and the threads that wait for room; see `Connection`.

    Args:
        segment_limit: Bytes that may be on their way in shared memory before senders wait.

    Attributes:
        queued: Bytes that wait for the socket.
    """

    __slots__ = (
        "_drained", "_lock", "_queue", "_segment_limit", "_segments_unread", "_send_limit",
        "_send_timeout", "_sock", "_writes", "peer", "queued",
    )  # fmt: skip

    def __init__(
        self,
        poller: Readiness,
        sock: socket.socket,
        send_limit: int,
        segment_limit: int,
        send_timeout: float,
    ) -> None:
        super().__init__(poller, sock.fileno())
        self._sock = sock
        self.peer: object = None
        self._lock = threading.Lock()
        self._drained: threading.Condition | None = None
        self._queue: deque[tuple[memoryview, Segment | None]] = deque()
        self.queued = 0
        self._send_limit = send_limit
        self._send_timeout = send_timeout
        # bytes sent that the other side has not yet reported as read
        self._segments_unread = 0
        self._segment_limit = segment_limit
        self._writes = 0

    def credit(self, count: int) -> None:
        """The other side has read so many more of the bytes sent in shared memory."""
        with self._lock:
            self._segments_unread -= count
        self._notify_drained()

    def flush(self, timeout: float) -> None:
        """Write the queued frames within `timeout`, for a process that ends without a poller."""
        end = time.monotonic() + timeout
        while self._queue and not self.closed and time.monotonic() < end:
            poll = select.poll()
            poll.register(self.fd, select.POLLOUT)
            poll.poll(max(0.0, end - time.monotonic()) * 1000)
            self._flush_queue()

    def _write_small(self, data: bytes) -> None:
        self._writes += 1
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except ConnectionError:
            # the read side reports the end, with everything that arrived before it
            raise
        except OSError:
            return
        if sent < len(data):
            self._enqueue([data], None, skip=sent)

    def _write_now(self, chunks: list[Bytes], segment: Segment | None) -> None:
        self._writes += 1
        try:
            if segment is not None:
                sent = self._sock.sendmsg(chunks, _passing(segment))
                segment = None
            else:
                sent = self._sock.sendmsg(chunks)
        except BlockingIOError:
            sent = 0
        except ConnectionError:  # as in `_write_small`
            raise
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS and segment is not None:
                self._enqueue(self._in_line(chunks[0], segment), None)
                return
            if error.errno != errno.EMSGSIZE:
                return
            sent = 0  # more parts than one system call takes: queued, they are written in several
        self._enqueue(chunks, segment, skip=sent)

    def _enqueue(self, chunks: list[Bytes], segment: Segment | None, skip: int = 0) -> None:
        was_empty = not self._queue
        for chunk in chunks:
            if skip >= len(chunk):
                skip -= len(chunk)
                continue
            rest = memoryview(chunk)[skip:]
            skip = 0
            # copy buffers other than `bytes`: the sender may change them once this returns
            self._queue.append(
                (rest if isinstance(chunk, bytes) else memoryview(bytes(rest)), segment)
            )
            self.queued += len(rest)
            segment = None  # its descriptor passes with the first byte that is left, and only once
        # else the poller watches for room already: one `epoll_ctl` for a burst, not one for each
        # frame
        if was_empty and self._queue:
            self._update_events()

    def _flush_queue(self) -> None:
        with self._lock:
            queue = self._queue
            while queue and not self.closed:
                try:
                    sent = self._write_some()
                except BlockingIOError:
                    break
                except OSError:
                    queue.clear()
                    self.queued = 0
                    break
                self.queued -= sent
                while queue and sent >= len(queue[0][0]):
                    sent -= len(queue.popleft()[0])
                if sent:  # a descriptor that went with the first bytes must not be passed again
                    queue[0] = (queue[0][0][sent:], None)
            if not queue:
                self._update_events()
        # at half, and not at once: a sender would wake up for each frame that is written
        if self.queued <= self._send_limit // 2:
            self._notify_drained()

    def _write_some(self) -> int:
        """Write the head of the queue, up to the next descriptor to pass."""
        self._writes += 1
        head, segment = self._queue[0]
        if segment is not None:
            try:
                sent = self._sock.sendmsg([head], _passing(segment))
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS:
                    raise
                parts = [memoryview(part) for part in self._in_line(head, segment)]
                self._queue.popleft()
                self._queue.extendleft((part, None) for part in reversed(parts))
                self.queued += sum(map(len, parts)) - len(head)
                return 0
            self._queue[0] = (head, None)
            return sent
        chunks = []
        for chunk, attached in islice(self._queue, _MAX_CHUNKS):
            if attached is not None:
                break
            chunks.append(chunk)
        return self._sock.sendmsg(chunks)

    def _in_line(self, head: Bytes, segment: Segment) -> list[Bytes]:
        """Encode a frame with its buffers on the stream. This is slower, but gets through when the
        kernel refuses to pass a segment's descriptor because too many are on their way
        (RLIMIT_NOFILE).
        """
        # of a duplicate: `map_segment` closes what it is given, and other receivers need the
        # segment
        frame = decode(bytes(head), map_segment(os.dup(segment.fd)))
        # the receiver reports only what it has read from segments
        self._segments_unread -= sum(map(len, frame.buffers))
        return [encode(frame)[0], *frame.buffers]

    def _wait_until_drained(self) -> None:
        if threading.get_ident() == self._poller.thread_id:
            return  # the thread that drains must not wait for itself
        with self._lock:
            # under the lock: two senders that get here at once must wait for the same condition
            condition = self._drained = self._drained or threading.Condition()
        with condition:
            drained = condition.wait_for(lambda: self.closed or self._has_room, self._send_timeout)
        if not drained:
            raise BackpressureError(
                f"{self.peer} has had no room for this message for {self._send_timeout:g}s: it"
                " reads nothing, or slower than it is sent to;"
                f" {self.queued + self._segments_unread} bytes wait for it. The limits are"
                " send_buffer_limit and message_delivery_timeout."
            )

    @property
    def _has_room(self) -> bool:
        return (
            # at half of each limit, as in `_flush_queue`
            self._segments_unread <= self._segment_limit // 2
            and self.queued <= self._send_limit // 2
        )

    def _notify_drained(self) -> None:
        if self._drained is not None:
            with self._drained:
                self._drained.notify_all()


def _passing(segment: Segment) -> list[tuple[int, int, array.array[int]]]:
    """Return the ancillary data that passes the descriptor of a segment."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [segment.fd]))]
