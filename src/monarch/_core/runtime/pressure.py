"""Back-pressure between actors: who sends more than a mailbox, or a port, may hold waits until it has been worked off.

The receiver tells each process that sends to a full queue (`HOLD`), and tells it again when half of the queue is worked
off; what a process has sent until it hears of that still comes. Meanwhile threads of that process that would send to that
queue wait, and nothing else does: calls to other actors on the same process, answers, supervision and stops pass.

What ends a wait: the word of the receiver; its end, or that of its process; a circle of waits through it, which the
detector of deadlocks finds: rather than the program, the bound gives way; `message_delivery_timeout`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence, Sized
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ... import config
from ...errors import BackpressureError
from ..supervision.failure import Failure
from ..wire.address import ProcAddress
from ..wire.frame import HOLD, Frame
from .deadlock import Awaited, note_wait, running_actor
from .future import Future
from .source import Source

if TYPE_CHECKING:
    from .node import Node, Origin

SMALL = 512
"""Messages of so many bytes are bounded by their number; to add up the sizes of all would cost each a lock."""


def weight(frame: Frame) -> int:
    """Bytes of a frame that count against the limit of a queue."""
    size = len(frame.payload)
    if frame.buffers:
        size += sum(map(len, frame.buffers))
    return size if size > SMALL else 0


class Pressure:
    """What a queue of messages holds, and who is told to send no more.

    Args:
        id: Of the actor, or port, that the queue belongs to.
        queue: The messages that have not been taken out.
    """

    __slots__ = ("_aside", "_bytes", "_id", "_lock", "_most", "_most_bytes", "_queue", "held")

    def __init__(self, id: int, queue: Sized) -> None:  # noqa: A002  # as in the frames
        self.held: dict[ProcAddress, Origin] = {}
        self._id = id
        self._queue = queue
        self._aside = 0  # messages that were taken out of the queue, and wait elsewhere
        self._bytes = 0
        self._lock = threading.Lock()  # several threads may read what is sent to one actor
        self._most: int = config.value("mailbox_limit")
        self._most_bytes: int = config.value("mailbox_bytes_limit")

    def came(self, origin: Origin, frame: Frame) -> None:
        """A message was put into the queue."""
        size = weight(frame)
        if size:
            with self._lock:
                self._bytes += size
        waiting = len(self._queue) + self._aside
        full = waiting > self._most or (
            self._bytes > self._most_bytes and waiting > 1
        )  # one alone is taken, however large
        if full and origin.peer not in self.held:
            self._tell(origin, 1)
            self.held[origin.peer] = origin  # only now: who takes messages out must not say the opposite first
            self._release_if_low()  # they may all have been, since the look at the queue

    def went(self, frame: Frame) -> None:
        """A message was taken out."""
        size = weight(frame)
        if size:
            with self._lock:
                self._bytes -= size
        if self.held:
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
        """A message is in the queue again, or is put there by who reads it."""
        with self._lock:
            self._bytes += weight(frame)

    def _release_if_low(self) -> None:
        if len(self._queue) + self._aside <= self._most // 2 and self._bytes <= self._most_bytes // 2:
            self.release()

    def release(self) -> None:
        """Let all go on. On any thread."""
        with suppress(KeyError):  # another thread may do so, too
            while self.held:
                _, origin = self.held.popitem()
                self._tell(origin, 0)

    def _tell(self, origin: Origin, on: int) -> None:
        with suppress(BackpressureError):  # it is queued for when the other side reads
            origin.send(Frame(HOLD, on, 0, self._id, 0, 0, b"", b""))


class Room(Source):
    """Room in a queue elsewhere, which threads wait for as for the answer to a call."""

    __slots__ = ("_address", "_id", "future")
    name = "room"

    def __init__(self, address: ProcAddress, id: int) -> None:  # noqa: A002
        self._address = address
        self._id = id
        self.future: Future[Any] = Future._new(self)

    def describe(self) -> str:
        return f"room in the mailbox of an actor of {self._address.proc}, which is full"

    def awaited(self) -> Awaited:
        return Awaited(self, self._id, (self._address,))

    def reply(self, frame: Frame) -> bool:
        return False  # it is told with a frame of its own

    def peer_failed(self, address: ProcAddress, failure: Failure) -> bool:
        if address == self._address:
            self.future._resolve(None)
        return address == self._address


class Holds(dict[tuple[ProcAddress, int], Room]):
    """The full queues that this process has heard of, by process and actor (or port)."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def heard(self, peer: ProcAddress, frame: Frame) -> None:
        """A receiver tells that it is full, or no more. On the thread that reads."""
        key = peer, frame.target
        if not frame.flags:
            self._end(self.get(key))
        elif key not in self:
            number = -next(self._node.request_ids)  # below 0: no call, which the detector of deadlocks wants to know
            room = self[key] = self._node.requests[number] = Room(*key)
            room.future._subscribe(lambda: self._forget(key, number))

    def let_go(self, number: int) -> None:
        """Who waits for this room is waited for itself: the queue takes what comes until it has been worked off once."""
        self._end(self._node.requests.get(number))

    @staticmethod
    def _end(room: Any) -> None:
        if room is not None:
            room.future._resolve(None)

    def _forget(self, key: tuple[ProcAddress, int], number: int) -> None:
        self.pop(key, None)
        self._node.requests.pop(number, None)

    def wait(self, procs: Sequence[ProcAddress], target: int) -> None:
        """Wait until an actor, or a port, has room for more on each of these processes.

        Raises:
            BackpressureError: One had none for `message_delivery_timeout` seconds. Nothing was sent.
        """
        for address in procs:
            room = self.get((address, target))
            if room is not None:
                self._wait_for(room, address, target)

    def _wait_for(self, room: Room, address: ProcAddress, target: int) -> None:
        running = running_actor()
        if running is not None and running.uid == target and running.node.address == address:
            return  # an actor that sends to itself
        if threading.get_ident() == self._node.poller.thread_id:
            return  # the thread that would hear of the room
        timeout: float = config.value("message_delivery_timeout")
        noted = note_wait(room.future)
        try:
            room.future._block(timeout, timeout)
        except TimeoutError:
            raise BackpressureError(
                f"{address} has not read for {timeout:g}s what was sent to one of its actors or ports, which holds all it "
                "may. Is it stuck? The limits are mailbox_limit, mailbox_bytes_limit and message_delivery_timeout."
            ) from None
        finally:
            if noted is not None:
                noted.pop(None, None)
