"""Frames over one connected Unix socket, in order, from any thread.

Sending: see `send_queue`. Receiving: the poller's thread reads, cuts frames and hands each to
`on_frame`. A thread that waits for what comes over this connection may `borrow` it and do the
reading itself (see `waiter`, `loan`). Reading never stops: two processes that flood each other
cannot lock each other up. A receiver with full queues says so (see `hub.pressure`).
"""

from __future__ import annotations

import array
import os
import socket
from collections import deque
from collections.abc import Callable

from ..._lazy import counted_logger
from ..._resources import none_left
from ..wire.frame import (
    CREDIT,
    FLAGS_AT,
    SEGMENT,
    Decoder,
    Frame,
    FrameError,
    decode,
    encode,
    parting,
)
from .asked import Asked
from .loan import Readiness
from .poller import READ, WRITE
from .scratch import scratch
from .segment import Segment, make_segment, map_segment
from .segment_pool import SegmentPool
from .send_queue import SendQueue
from .traffic import Traffic, TrafficLog

_FD_SPACE = socket.CMSG_SPACE(16 * 4)
# bytes in shared memory after which their sender is told that they were read
SEGMENT_CREDIT = 4 * 1024 * 1024
# of answers: each report wakes the answering process, which has nothing else to read
_ANSWER_CREDIT = 32 * 1024 * 1024

logger = counted_logger("monarch.net")

FrameHandler = Callable[["Connection", Frame], None]
CloseHandler = Callable[["Connection", str], None]


class Connection(SendQueue):
    """One connected socket.

    Args:
        poller: Waits for its readiness: the poller, or a group.
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
        "_bytes_read", "_bytes_sent", "_credit", "_decoder", "_fds", "_frames_read", "_frames_sent", "_hung_up", "_log",
        "_make_segment", "_on_close", "_reads", "_segments_untold", "asked", "on_frame", "parting",
    )  # fmt: skip

    called = None  # by another host

    def __init__(
        self,
        poller: Readiness,
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
        # Half of a limit is no less than the bytes that the other side may have read without a
        # report; else a sender could wait for a report that is not due.
        self._credit, at_least = SEGMENT_CREDIT, 2 * _ANSWER_CREDIT
        if asked is not None:
            self._credit, at_least = _ANSWER_CREDIT, 4 * SEGMENT_CREDIT
        super().__init__(poller, sock, send_limit, max(send_limit, at_least), send_timeout)
        self.parting = ""  # why the other side is about to end it, if it has said so
        self.on_frame = on_frame
        self._on_close = on_close
        self._decoder = Decoder(limit)
        self._fds: deque[int] = deque()
        self._make_segment = make_segment if segments is None else segments.make
        # the other side has closed it; what it sent before may have yet to be read
        self._hung_up = False
        self.asked = asked
        self._segments_untold = 0  # bytes read here that the other side was not told of
        self._frames_sent = self._bytes_sent = 0
        self._frames_read = self._bytes_read = self._reads = 0
        self._log = log
        poller.add(self.fd, self._ready)
        if log is not None:
            log.opened(self)

    @property
    def writable(self) -> bool:
        """True if the peer may still be there."""
        return not (self.closed or self._hung_up)

    def traffic(self) -> Traffic:
        """Return the counts so far."""
        return Traffic(
            self._frames_sent, self._bytes_sent, self._writes, self._frames_read, self._bytes_read,
            self._reads, self.queued,
        )  # fmt: skip

    def send(self, frame: Frame, segment: Segment | None = None) -> bool:
        """Send a frame; False, with nothing delivered, if either side has closed the connection.

        Args:
            frame: Its buffers may be changed by the caller as soon as this returns.
            segment: The buffers, when the caller has already written them for several receivers.

        Raises:
            BackpressureError: The queue was full for `send_timeout` seconds.
        """
        buffers = frame.buffers
        if buffers:
            if self.asked is not None and self._segments_unread > self._segment_limit:
                self._wait_until_drained()  # before it is sent: a request can wait
            if segment is None:
                segment = self._make_segment(buffers)
            if segment is not None:
                frame = frame._replace(flags=frame.flags | SEGMENT)
                passed = sum(map(len, buffers))
                buffers = ()
        data, size = encode(frame, inline=segment is None)
        with self._lock:
            if self.closed or self._hung_up:
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
                # under the lock of the write: when the connection breaks, exactly the requests that
                # were written to it are answered with its end (see `hub.local_peer`)
                self.asked.note(frame.request)
            self._frames_sent += 1
            self._bytes_sent += size
            if segment is not None:
                self._segments_unread += passed
        if self.queued > self._send_limit or (
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
            if self.closed or self._hung_up:
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
        """Write an encoded frame without waiting; False, and nothing done, if that can't be."""
        with self._lock:
            if self.closed or self._hung_up or self._queue:
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
                # as in `send`
                self.asked.note(request)
            self._writes += 1
            self._frames_sent += 1
            self._bytes_sent += len(frame)
            if sent < len(frame):
                self._enqueue([frame], None, skip=sent)
        return True

    def abandon(self) -> None:
        """Let go of the parent's socket in a forked child, without touching what both share."""
        self.closed = True
        # no `epoll_ctl`: the epoll instance is the parent's, and would forget the parent's
        # connection
        fd = self._sock.detach()
        if fd >= 0:
            os.close(fd)

    def close(self) -> None:
        """Close without a word to `on_close`; queued frames are lost."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self._queue.clear()
            self.queued = 0
        if self._log is not None:
            self._log.closed(self)
        with self._events:
            # before the close, after which the number may be that of another file; and under the
            # lock, so that no `_watch` modifies that one
            self._poller.remove(self.fd)
            self._sock.close()
        while self._fds:
            os.close(self._fds.popleft())
        self._notify_drained()

    # receiving

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._flush_queue()
        if not events & ~WRITE or self.closed:
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
        """Read once and hand on what came; for the poller's thread, or the borrowing one."""
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
            if self.closed:  # by what the frame before it did
                return None
            try:
                self.on_frame(self, frame)
            except FrameError as error:  # of a route: its maker may be another process
                logger.warning("a peer sent something unreadable: %s", error)
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
        # not by `send`, which may wait for room: two sides that wait for each other's report would
        # never read it
        self.send_encoded(encode(Frame(CREDIT, 0, 0, 0, 0, told, b"", b""))[0])

    def _take_descriptors(self, ancillary: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                # the kernel may cut ancillary data in the middle of an integer
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
                self._fds.extend(fds)

    def _lost(self, reason: str) -> None:
        if not self.closed:
            self.close()
            self._on_close(self, reason)

    def _watch(self, read: bool) -> None:
        if not self.closed:
            self._poller.modify(self.fd, (READ if read else 0) | (WRITE if self._queue else 0))

    def _cut_short(self, error: BaseException) -> None:
        reason = f"reading it was cut short by {type(error).__name__}"
        self._poller.call_soon(lambda: self._lost(reason))
