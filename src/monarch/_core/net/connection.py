"""Frames over one connected Unix socket, in order, from any thread.

Sending: the calling thread writes to the socket itself when nothing is queued (no thread switch,
one syscall). What the kernel does not take is copied and queued, and the poller's thread writes it
when the socket drains. A thread that has made the queue longer than `send_limit` waits, which is
how a slow receiver slows its senders. What ends that wait: the queue drains, the connection closes,
or `send_timeout` passes.

What travels in shared memory takes no room in the socket, so the kernel would take thousands of
segments. Each side therefore counts what of them the other has not read, which that tells once per
`SEGMENT_CREDIT` bytes, of answers once per `_ANSWER_CREDIT`; who has made that too much waits, as
for the queue. What it waits for has been sent by then.

Receiving: the poller's thread reads, cuts frames and hands each to `on_frame`. A thread that waits
for what comes over this connection may `borrow` it and do the reading itself (see `waiter`,
`loan`). Reading never stops: two processes that flood each other cannot lock each other up. Whose
queues are full says so (see `hub.pressure`).
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
from collections.abc import Callable
from itertools import islice

from ..._lazy import lazy_logger
from ...errors import BackpressureError
from ..wire.frame import (
    CREDIT,
    FLAGS_AT,
    SEGMENT,
    Bytes,
    Decoder,
    Frame,
    FrameError,
    decode,
    encode,
    parting,
)
from .asked import Asked
from .descriptors import none_left
from .loan import Lendable, Watch
from .poller import READ, WRITE
from .scratch import scratch
from .segment import Segment, make_segment, map_segment
from .segment_pool import SegmentPool
from .traffic import Traffic, TrafficLog

_FD_SPACE = socket.CMSG_SPACE(16 * 4)
_MAX_CHUNKS = 64  # per sendmsg; the kernel allows 1024
# bytes in shared memory after which their sender is told that they were read
SEGMENT_CREDIT = 4 * 1024 * 1024
# of answers: each telling wakes the one who answered, who had nothing to read
_ANSWER_CREDIT = 32 * 1024 * 1024

logger = lazy_logger("monarch.net")

FrameHandler = Callable[["Connection", Frame], None]
CloseHandler = Callable[["Connection", str], None]


class Connection(Lendable):
    """One connected socket.

    Args:
        poller: Who waits for it: the poller, or a group.
        sock: Connected, non-blocking; owned by this object from now on.
        on_frame: Called for each frame, on the poller's thread; an attribute, which may be set
            anew.
        on_close: Called once, on the poller's thread, with the reason; not after `close`.
        limit: Largest frame, in bytes, either way.
        send_limit: Bytes that may be queued before senders wait; and as many may be on their way in
            shared memory.
        send_timeout: Seconds a sender waits for the queue to drain.
        asked: Told of each request, if requests go out over it and answers come back; None where it
            is the other way round.
        segments: Where memory for large buffers comes from; None for fresh memory each time.
        log: Adds up what all connections count.
    """

    __slots__ = (
        "_bytes_read", "_bytes_sent", "_closed", "_credit", "_decoder", "_drained", "_fds", "_frames_read",
        "_frames_sent", "_hung_up", "_lock", "_log", "_make_segment", "_on_close", "_queue", "_queued", "_reads",
        "_segment_limit", "_segments_unread", "_segments_untold", "_send_limit", "_send_timeout", "_sock", "_writes", "asked",
        "on_frame", "parting", "peer",
    )  # fmt: skip

    called = None  # by another host

    def __init__(
        self,
        poller: Watch,
        sock: socket.socket,
        on_frame: FrameHandler,
        on_close: CloseHandler,
        *,
        limit: int,
        send_limit: int,
        send_timeout: float,
        asked: Asked | None = None,
        segments: SegmentPool | None = None,
        log: TrafficLog | None = None,
    ) -> None:
        super().__init__(poller, sock.fileno())
        self._sock = sock
        self.peer: object = None
        self.parting = ""  # why the other side is about to end it, if it has said so
        self.on_frame = on_frame
        self._on_close = on_close
        self._decoder = Decoder(limit)
        self._fds: deque[int] = deque()
        self._lock = threading.Lock()
        self._make_segment = make_segment if segments is None else segments.make
        self._drained: threading.Condition | None = None
        self._queue: deque[tuple[memoryview, Segment | None]] = deque()
        self._queued = 0
        self._send_limit = send_limit
        self._send_timeout = send_timeout
        self._closed = False
        # the other side has closed it; what it sent before may have yet to be read
        self._hung_up = False
        self.asked = asked
        # bytes of what was sent that the other side has not read, as far as it has told
        self._segments_unread = 0
        self._segments_untold = 0  # bytes of what was read here and not told
        self._credit, at_least = SEGMENT_CREDIT, 2 * _ANSWER_CREDIT
        if asked is not None:
            self._credit, at_least = _ANSWER_CREDIT, 4 * SEGMENT_CREDIT
        self._segment_limit = max(send_limit, at_least)
        self._frames_sent = self._bytes_sent = self._writes = 0
        self._frames_read = self._bytes_read = self._reads = 0
        self._log = log
        poller.add(self.fd, self._ready)
        if log is not None:
            log.opened(self)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def writable(self) -> bool:
        """True if the peer may still be there."""
        return not (self._closed or self._hung_up)

    @property
    def queued(self) -> int:
        """Bytes waiting for the socket."""
        return self._queued

    def traffic(self) -> Traffic:
        """Return the counts so far."""
        return Traffic(
            self._frames_sent,
            self._bytes_sent,
            self._writes,
            self._frames_read,
            self._bytes_read,
            self._reads,
            self._queued,
        )

    def send(self, frame: Frame, segment: Segment | None = None) -> bool:
        """Send a frame, or return False if the connection is closed, on either side: then nothing
        of it has arrived.

        Args:
            frame: Its buffers may be changed by the caller as soon as this returns.
            segment: The buffers, when the caller has already written them for several receivers.

        Raises:
            BackpressureError: The queue was full for `send_timeout` seconds.
        """
        buffers = frame.buffers
        if buffers:
            if self.asked is not None and self._segments_unread > self._segment_limit:
                self._wait_until_drained()  # before it is sent: who asks can do so later
            if segment is None:
                segment = self._make_segment(buffers)
            if segment is not None:
                frame = frame._replace(flags=frame.flags | SEGMENT)
                passed = sum(map(len, buffers))
                buffers = ()
        data, size = encode(frame, inline=segment is None)
        with self._lock:
            if self._closed or self._hung_up:
                return False
            try:
                if self._queue:
                    self._enqueue([data, *buffers], segment)
                elif buffers or segment is not None:
                    self._write_now([data, *buffers], segment)
                else:
                    self._write_small(data)
            except ConnectionError:
                self._hung_up = True
                return False
            if self.asked is not None and frame.request:
                self.asked.note(frame.request)
            self._frames_sent += 1
            self._bytes_sent += size
            if segment is not None:
                self._segments_unread += passed
        if self._queued > self._send_limit or (
            segment is not None
            and self.asked is None
            and self._segments_unread > self._segment_limit
        ):
            # Not for frames without a segment: they may come from the thread that has to read the
            # word of room.
            self._wait_until_drained()
        return True

    def send_encoded(self, frames: bytes) -> bool:
        """Send whole frames that are encoded already, one after the other; False as with `send`."""
        with self._lock:
            if self._closed or self._hung_up:
                return False
            try:
                if self._queue:
                    self._enqueue([frames], None)
                else:
                    self._write_small(frames)
            except ConnectionError:
                self._hung_up = True
                return False
            self._frames_sent += 1
            self._bytes_sent += len(frames)
        return True

    def write_if_idle(self, frame: bytes, request: int = 0) -> bool:
        """Write a frame that is encoded already, without waiting; False, and nothing done, where
        that can't be at once.
        """
        with self._lock:
            if self._closed or self._hung_up or self._queue:
                return False
            try:
                sent = self._sock.send(frame)
            except BlockingIOError:
                return False
            except ConnectionError:
                self._hung_up = True
                return False
            except OSError:
                return True  # as in `_write_small`
            if self.asked is not None and request:
                self.asked.note(request)
            self._writes += 1
            self._frames_sent += 1
            self._bytes_sent += len(frame)
            if sent < len(frame):
                self._enqueue([frame], None, skip=sent)
        return True

    def credit(self, count: int) -> None:
        """The other side has read so many bytes more of what was sent in shared memory."""
        with self._lock:
            self._segments_unread -= count
        self._notify_drained()

    @property
    def readable_by_borrower(self) -> bool:
        return not self._closed

    def abandon(self) -> None:
        """In a forked child: let go of the parent's socket without touching what both share."""
        self._closed = True
        fd = self._sock.detach()
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Close without a word to `on_close`; what is queued is lost."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._queue.clear()
            self._queued = 0
        if self._log is not None:
            self._log.closed(self)
        with self._events:
            self._poller.remove(self.fd)
            self._sock.close()
        while self._fds:
            os.close(self._fds.popleft())
        self._notify_drained()

    def flush(self, timeout: float) -> None:
        """Write what is queued, for a process that ends and whose poller no longer runs; gives up
        after `timeout`.
        """
        end = time.monotonic() + timeout
        while self._queue and not self._closed and time.monotonic() < end:
            poll = select.poll()
            poll.register(self.fd, select.POLLOUT)
            poll.poll(max(0.0, end - time.monotonic()) * 1000)
            self._flush_queue()

    # sending

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
            self._queue.append(
                (rest if isinstance(chunk, bytes) else memoryview(bytes(rest)), segment)
            )
            self._queued += len(rest)
            segment = None
        if was_empty and self._queue:
            self._update_events()

    def _flush_queue(self) -> None:
        with self._lock:
            queue = self._queue
            while queue and not self._closed:
                try:
                    sent = self._write_some()
                except BlockingIOError:
                    break
                except OSError:
                    queue.clear()
                    self._queued = 0
                    break
                self._queued -= sent
                while queue and sent >= len(queue[0][0]):
                    sent -= len(queue.popleft()[0])
                if sent:
                    queue[0] = (queue[0][0][sent:], None)
            if not queue:
                self._update_events()
        if self._queued <= self._send_limit // 2:
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
                self._queued += sum(map(len, parts)) - len(head)
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
        """A frame whose segment cannot be passed, as more descriptors are on their way than a user
        may have files, with its buffers on the stream: that takes longer, and gets through.
        """
        frame = decode(bytes(head), map_segment(os.dup(segment.fd)))
        self._segments_unread -= sum(map(len, frame.buffers))
        return [encode(frame)[0], *frame.buffers]

    def _wait_until_drained(self) -> None:
        if threading.get_ident() == self._poller.thread_id:
            return  # the thread that drains must not wait for itself
        with self._lock:
            condition = self._drained = self._drained or threading.Condition()
        with condition:
            drained = condition.wait_for(lambda: self._closed or self._has_room, self._send_timeout)
        if not drained:
            raise BackpressureError(
                f"{self.peer} has had no room for this message for {self._send_timeout:g}s: it"
                " reads nothing, or slower than it is sent to;"
                f" {self._queued + self._segments_unread} bytes wait for it. The limits are"
                " send_buffer_limit and message_delivery_timeout."
            )

    @property
    def _has_room(self) -> bool:
        return (
            self._segments_unread <= self._segment_limit // 2
            and self._queued <= self._send_limit // 2
        )

    def _notify_drained(self) -> None:
        if self._drained is not None:
            with self._drained:
                self._drained.notify_all()

    # receiving

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush_queue()
        if not events & ~WRITE or self._closed:
            return
        if not self._reading.acquire(blocking=False):
            self._look_away()
            return
        try:
            self.receive()
        except BaseException as error:
            if not isinstance(error, Exception):
                self._cut_short(error)
            raise
        finally:
            self._reading.release()

    def receive(self) -> None:
        """Read once and hand on what came; for the poller's thread, or the one that has borrowed
        the connection.
        """
        decoder = self._decoder
        large = decoder.space()
        memory = scratch.memory if large is None else large
        try:
            count, ancillary, _, _ = self._sock.recvmsg_into(
                [memory], _FD_SPACE, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        except OSError as error:
            return self._lost(f"the connection broke: {error}")
        self._reads += 1
        self._bytes_read += count
        if ancillary:
            self._take_descriptors(ancillary)
        if not count:
            return self._lost(
                "it closed the connection" + ("" if decoder.idle else " in the middle of a message")
            )
        broken = None
        frames: list[Frame] = []
        try:
            for data in (
                decoder.filled(count) if large is not None else decoder.feed(memory[:count])
            ):
                shared = data[FLAGS_AT] & SEGMENT
                # one by one: those before a bad one are kept
                frames.append(self._with_segment(data) if shared else decode(data))
        except FrameError as error:
            broken = f"it sent something unreadable: {error}"
        if broken is not None and self.asked is None:
            self.send_encoded(encode(parting(broken))[0])
        self._frames_read += len(frames)
        if self._segments_untold >= self._credit:
            self._tell_of_segments()
        for frame in frames:
            if self._closed:  # by what the frame before it did
                return None
            try:
                self.on_frame(self, frame)
            except Exception:  # a bug in handling one message must not lose those behind it
                logger.exception("internal error in handling a message; please report it")
        return self._lost(broken) if broken is not None else None

    def _with_segment(self, data: bytes | memoryview) -> Frame:
        if not self._fds:
            raise FrameError(f"shared memory did not come with its message: {none_left()}")
        try:
            memory = map_segment(self._fds.popleft())
        except (OSError, ValueError) as error:
            # no descriptor or address space left, or no memory file
            raise FrameError(f"its shared memory could not be mapped: {error}") from error
        frame = decode(data, memory)
        self._segments_untold += sum(map(len, frame.buffers))
        return frame

    def _tell_of_segments(self) -> None:
        told, self._segments_untold = self._segments_untold, 0
        self.send_encoded(encode(Frame(CREDIT, 0, 0, 0, 0, told, b"", b""))[0])

    def _take_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self._fds.extend(fds)

    def _lost(self, reason: str) -> None:
        if not self._closed:
            self.close()
            self._on_close(self, reason)

    def _watch(self, read: bool) -> None:
        if not self._closed:
            self._poller.modify(self.fd, (READ if read else 0) | (WRITE if self._queue else 0))

    def _cut_short(self, error: BaseException) -> None:
        reason = f"reading it was cut short by {type(error).__name__}"
        self._poller.call_soon(lambda: self._lost(reason))


def _passing(segment: Segment) -> list[tuple[int, int, array.array[int]]]:
    """Return the ancillary data that passes the descriptor of a segment."""
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [segment.fd]))]
