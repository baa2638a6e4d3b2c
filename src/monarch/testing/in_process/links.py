"""Links in memory between the hubs of one process: the bytes of each frame, in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..._core.net.asked import Asked
from ..._core.net.segment import Segment
from ..._core.net.traffic import Traffic, TrafficLog
from ..._core.wire.frame import Frame, decode, encode
from .turns import Lane, Turns

FrameHandler = Callable[["LocalLink", Frame], None]
CloseHandler = Callable[["LocalLink", str], None]


class Unlent:
    """The base of what no thread borrows: messages are brought by the schedule."""

    fd = -1
    readable_by_borrower = False

    def borrow(self) -> bool:
        return False

    def give_back(self, error: BaseException | None = None) -> None: ...

    def receive(self) -> None: ...

    def close(self) -> None: ...

    def abandon(self) -> None: ...


class LocalLink(Unlent):
    """One end of a link, in the place of a `Connection`.

    Args:
        owner: The hub at this end.
        turns: The schedule.
        peer: The process at the other end.
        on_frame: Called for each frame, on the I/O thread.
        closed: Called once, when the other end is closed, with the reason.
        asked: Told of each request, at the end that asks.
        log: Adds up what the links of a hub count.
    """

    called = None  # by another host

    def __init__(
        self, owner: object, turns: Turns, peer: object, on_frame: FrameHandler, closed: CloseHandler, log: TrafficLog, asked: Asked | None
    ) -> None:  # fmt: skip
        self.peer = peer
        self.parting = ""
        self.asked = asked
        self.other: LocalLink | None = None
        self.closed = False
        self._on_frame = on_frame
        self._on_close = closed
        self._lane = Lane(turns, owner)
        self._log = log
        self._sent = self._sent_bytes = self._read = self._read_bytes = 0
        log.opened(self)

    def hold(self, here: bool, there: bool) -> None:
        """Hold up messages on their way to this end and to the other one; or no longer."""
        assert self.other is not None
        self._lane.hold(here)
        self.other._lane.hold(there)

    def fail(self, reason: str) -> None:
        """Both ends lose the link, with all that is on its way."""
        assert self.other is not None
        for end in (self, self.other):
            end._lost(reason)

    def join(self, other: LocalLink) -> None:
        """The two are the ends of one link."""
        self.other, other.other = other, self

    @property
    def writable(self) -> bool:
        return not self.closed and self.other is not None and not self.other.closed

    def traffic(self) -> Traffic:
        return Traffic(
            self._sent, self._sent_bytes, self._sent, self._read, self._read_bytes, self._read
        )

    def send(self, frame: Frame, segment: Segment | None = None) -> bool:
        """Send a copy of a frame; False if the link is closed."""
        data, _ = encode(frame)
        return self.write_if_idle(b"".join((data, *frame.buffers)), frame.request)

    def write_if_idle(self, frame: bytes, request: int = 0) -> bool:
        """Send a frame that is encoded already; False if the link is closed."""
        if not self.writable:
            return False
        if self.asked is not None and request:
            self.asked.note(request)
        self._sent += 1
        self._sent_bytes += len(frame)
        assert self.other is not None
        self.other._lane.put(partial(self.other._arrive, frame))
        return True

    def _arrive(self, data: bytes) -> None:
        if not self.closed:
            self._read += 1
            self._read_bytes += len(data)
            self._on_frame(self, decode(data))

    def credit(self, count: int) -> None:
        """Do nothing: nothing crosses in shared memory."""

    def flush(self, timeout: float) -> None:
        """Do nothing: nothing is queued here."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._log.closed(self)
            self._lane.close()
            if self.other is not None:
                self.other._lane.put(self.other._lost)

    def _lost(self, reason: str = "it closed the connection") -> None:
        if not self.closed:
            self.close()
            self._on_close(self, reason)
