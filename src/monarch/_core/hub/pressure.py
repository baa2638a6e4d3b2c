"""Back-pressure between actors: a sender waits while a mailbox or port is full.

The receiver tells each process that sends to a full queue (`PAUSE`), and tells it again when half
of the queue is worked off; what a process has sent until it hears of that still comes. Meanwhile
threads of that process that would send to that queue wait, and nothing else does: calls to other
actors on the same process, answers, supervision and stops pass.

What ends a wait: the word of the receiver; its end, or that of its process; a circle of waits
through it, which the detector of deadlocks finds: rather than the program, the bound gives way;
`message_delivery_timeout`.
"""

from __future__ import annotations

import threading
from collections.abc import Sized
from contextlib import suppress

from ... import config
from ..._lazy import note
from ...errors import BackpressureError
from ..wire.address import ProcAddress
from ..wire.frame import CALL, PAUSE, PORT, URGENT, Frame
from .contracts import Origin

_OVERHEAD = 256  # bytes that a message counts beyond its content, on its way to another process

SMALL = 512
"""Messages of so many bytes are bounded by their number; to add up the sizes of all would cost each
a lock.
"""


def weight(frame: Frame) -> int:
    """Bytes of a frame that count against the limit of a queue."""
    size = len(frame.payload)
    if frame.buffers:
        size += sum(map(len, frame.buffers))
    return size if size > SMALL else 0


def counted(frame: Frame) -> int:
    """Bytes of a frame that count against the window; 0 for what never waits."""
    if frame.kind not in (CALL, PORT) or frame.flags & URGENT:
        return 0
    return size_of(frame)


def size_of(frame: Frame) -> int:
    """Bytes that a frame counts."""
    return _OVERHEAD + len(frame.payload) + sum(map(len, frame.buffers))


class Pressure:
    """The fill level of a message queue, and the senders told to pause.

    Args:
        id: Of the actor, or port, that the queue belongs to.
        queue: The messages that have not been taken out.
    """

    __slots__ = ("_aside", "_bytes", "_id", "_lock", "_most", "_most_bytes", "_queue", "paused")

    def __init__(self, id: int, queue: Sized) -> None:  # noqa: A002  # as in the frames
        self.paused: dict[ProcAddress, Origin] = {}
        self._id = id
        self._queue = queue
        self._aside = 0  # messages that were taken out of the queue, and wait elsewhere
        self._bytes = 0
        self._lock = threading.Lock()  # several threads may read messages for one actor
        self._most: int = config.value("mailbox_limit")
        self._most_bytes: int = config.value("mailbox_bytes_limit")

    def came(self, origin: Origin, frame: Frame) -> None:
        """A message was put into the queue."""
        size = weight(frame)
        if size:
            with self._lock:
                self._bytes += size
        waiting = len(self._queue) + self._aside
        # one alone is taken, however large
        full = waiting > self._most or (self._bytes > self._most_bytes and waiting > 1)
        if full and origin.peer not in self.paused:
            text = "mailbox %d is full: %d messages; %s is paused"
            note("bounds", text, self._id, waiting, origin.peer)
            self._tell(origin, 1)
            # only now: the thread that takes messages out must not say the opposite first
            self.paused[origin.peer] = origin
            self._release_if_low()  # they may all have been, since the look at the queue

    def went(self, frame: Frame) -> None:
        """A message was taken out."""
        size = weight(frame)
        if size:
            with self._lock:
                self._bytes -= size
        if self.paused:
            self._release_if_low()

    def set_aside(self, origin: Origin, frame: Frame) -> None:
        """A message that was taken out waits elsewhere."""
        with self._lock:
            self._aside += 1
        self.came(origin, frame)

    def taken_up(self, frame: Frame) -> None:
        """A message waits no longer that was set aside."""
        with self._lock:
            self._aside -= 1
        self.went(frame)

    def put_back(self, frame: Frame) -> None:
        """A message is in the queue again, or is put there by its reader."""
        with self._lock:
            self._bytes += weight(frame)

    def _release_if_low(self) -> None:
        if (
            # at half, not at the limit: each sender would be paused and released once per message
            len(self._queue) + self._aside <= self._most // 2
            and self._bytes <= self._most_bytes // 2
        ):
            self.release()

    def release(self) -> None:
        """Let all go on. On any thread."""
        with suppress(KeyError):  # another thread may do so, too
            while self.paused:
                _, origin = self.paused.popitem()
                self._tell(origin, 0)

    def _tell(self, origin: Origin, on: int) -> None:
        with suppress(BackpressureError):  # it is queued for when the other side reads
            origin.send(Frame(PAUSE, on, 0, self._id, 0, 0, b"", b""))
