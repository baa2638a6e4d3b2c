"""The holder's side.

There is one lease per buffer and process, shared by its handles and by transfers in progress.

A lease without any reference ends; its owner is told. `Outbox` tells it, since a lease may
end inside of the garbage collector, on any thread and inside of any lock.
"""

from __future__ import annotations

import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..._core.plane import Hub, ProcAddress, send_record
from ..errors import BufferDroppedError
from .records import BufferInfo, Claim, Grant, LeaseNews, Recall

if TYPE_CHECKING:
    from ..paths.path import BufferLink


class Pickled:
    """The time at which a handle was last pickled; what a lease leaves behind."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at: float | None = None

    def since(self, now: float) -> float:
        """Seconds, -1 if none ever was."""
        return -1.0 if self.at is None else now - self.at


class Lease:
    """A process's hold on one buffer.

    Attributes:
        grant: What its owner has told, until that is recalled.
        link: The way that transfers take, once one was found.
    """

    __slots__ = (
        "__weakref__", "_lock", "_pickled", "_recalled", "_used", "_waiting", "claim", "grant",
        "info", "link",
    )  # fmt: skip

    def __init__(self, info: BufferInfo, serial: int, outbox: Outbox) -> None:
        self.info = info
        self.claim = Claim(info.id, info.key, serial)
        self.grant: Grant | None = None
        self.link: BufferLink | None = None
        self._lock = threading.Lock()
        self._used = 0
        self._recalled: str | None = None
        self._waiting: list[Callable[[], None]] = []
        self._pickled = Pickled()
        # not `__del__`: while that runs, another thread may still get hold of the lease, by its
        # weak reference
        weakref.finalize(self, outbox.put, info.owner, self.claim, self._pickled).atexit = False

    def begin(self) -> None:
        """Note that a transfer is going to use the lease.

        Until `end`, its memory stays where it is, if there is a grant.

        Raises:
            BufferDroppedError: It was recalled.
        """
        with self._lock:
            if self._recalled is not None:
                raise BufferDroppedError(f"the buffer is no longer there: {self._recalled}")
            self._used += 1

    def end(self) -> None:
        with self._lock:
            self._used -= 1
            waiting, self._waiting = ([], self._waiting) if self._used else (self._waiting, [])
        # out of the lock: an answer is a message to the owner, which may have to wait for room
        for answer in waiting:
            answer()

    def recall(self, reason: str, answer: Callable[[], None]) -> None:
        """The owner takes it back; `answer` is called when no transfer uses it any more."""
        with self._lock:
            # first: a transfer that begins from now on is refused, and those before are counted in
            # `_used`
            self._recalled = reason
            self.grant = self.link = None
            if self._used:
                self._waiting.append(answer)
                return
        answer()

    def note_pickled(self) -> None:
        """A handle is about to travel."""
        self._pickled.at = time.monotonic()


class Leases:
    """The leases of one process."""

    def __init__(self, hub: Hub) -> None:
        self.outbox = Outbox(hub)
        self._lock = threading.Lock()
        self._serials = itertools.count(1)
        self._leases: weakref.WeakValueDictionary[tuple[ProcAddress, int, bytes], Lease] = (
            weakref.WeakValueDictionary()
        )

    def next_serial(self) -> int:
        return next(self._serials)

    def of(self, info: BufferInfo, serial: int | None = None) -> Lease:
        """The lease for a handle.

        Args:
            info: The description of the buffer.
            serial: Its number, where the owner knows of it already; otherwise it is told.
        """
        key = info.owner, info.id, info.key
        with self._lock:
            lease = self._leases.get(key)
            if lease is None:
                lease = self._leases[key] = Lease(info, serial or self.next_serial(), self.outbox)
                if serial is None:
                    self.outbox.put(info.owner, lease.claim)
            return lease

    def recall(self, owner: ProcAddress, recall: Recall, answer: Callable[[], None]) -> None:
        lease = self._leases.get((owner, recall.id, recall.key))
        if lease is None:
            answer()
        else:
            lease.recall(recall.reason, answer)


class Outbox:
    """Messages to owners about leases. `put` takes no lock."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._events: deque[tuple[ProcAddress, Claim, Pickled | None]] = deque()

    def put(self, owner: ProcAddress, claim: Claim, ended: Pickled | None = None) -> None:
        """Note that a lease has begun, or has ended."""
        self._events.append((owner, claim, ended))
        self._hub.poller.call_soon(self._flush)

    def _flush(self) -> None:
        now = time.monotonic()
        by_owner: dict[ProcAddress, list[tuple[Claim, float | None]]] = {}
        while self._events:
            owner, claim, ended = self._events.popleft()
            by_owner.setdefault(owner, []).append(
                (claim, None if ended is None else ended.since(now))
            )
        for owner, events in by_owner.items():
            send_record(self._hub, owner, LeaseNews(tuple(events)))
