"""Frames that wait for a process to be reached, and the senders that wait because they are too many.

What bounds it is what bounds the queue of a connection: a thread that has made it longer than `send_buffer_limit` waits.
What ends that wait: the process is reached, or has ended, or `message_delivery_timeout` passes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ... import config
from ...errors import BackpressureError
from ..net.segment import Segment
from ..wire.address import ProcAddress
from ..wire.frame import ROUTED, URGENT, Frame
from .remote import counted


class Backlog:
    """Frames for one process, in order. All is called with the lock of its `Peer` held.

    Args:
        address: The process.
        lock: That lock; free while somebody waits here.
    """

    __slots__ = ("_address", "_bytes", "_frames", "_room")

    def __init__(self, address: ProcAddress, lock: threading.Lock) -> None:
        self._address = address
        self._room = threading.Condition(lock)
        self._frames: list[tuple[Frame, Segment | None]] = []
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def add(self, frame: Frame, segment: Segment | None, may_wait: bool) -> None:
        """Keep a frame; wait until there is room again for more, if the thread may and the frame is none that never waits.

        Raises:
            BackpressureError: There was none for `message_delivery_timeout` seconds. The frame is kept.
        """
        size = counted(frame)
        self._frames.append((_own_buffers(frame, segment), segment))
        self._bytes += size
        limit: int = config.value("send_buffer_limit")
        if (
            not size or not may_wait or self._bytes <= limit or len(self._frames) == 1
        ):  # one alone is kept, however large
            return
        timeout: float = config.value("message_delivery_timeout")
        if not self._room.wait_for(lambda: self._bytes <= limit // 2, timeout):
            raise BackpressureError(
                f"{self._address} could not be reached for {timeout:g}s; {self._bytes} bytes wait for it to start. "
                "The limits are send_buffer_limit and message_delivery_timeout."
            )

    def write(self, send: Callable[[Frame, Segment | None], bool]) -> None:
        """Send what waits. What can't be, as the process has hung up already, waits on."""
        self._replace([one for one in self._frames if not send(*one)])

    def drop(self) -> set[int]:
        """Let go of all. Returns the numbers of their requests."""
        return self._replace([])

    def drop_all_but_what_can_wait(self) -> set[int]:
        """Let go of what is not for the next incarnation: what is urgent was about this one, and what was sent by another
        host fails there. Returns the numbers of the requests that end.
        """
        return self._replace([one for one in self._frames if not one[0].flags & (URGENT | ROUTED)])

    def _replace(self, kept: list[tuple[Frame, Segment | None]]) -> set[int]:
        left, self._frames = self._frames, kept
        self._bytes = sum(counted(frame) for frame, _ in kept)
        self._room.notify_all()
        return {frame.request for frame, _ in left} - {frame.request for frame, _ in kept}


def _own_buffers(frame: Frame, segment: Segment | None) -> Frame:
    """A frame that the caller's later writes cannot change."""
    if segment is not None or not frame.buffers:
        return frame
    return frame._replace(buffers=[bytearray(buffer) for buffer in frame.buffers])
