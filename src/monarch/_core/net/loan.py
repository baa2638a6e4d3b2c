"""The reader of a connection: the poller's thread, or the thread that has borrowed it.

A loan costs a system call when it begins and one when it ends. A thread that waits again and again,
for short times, would pay that for each message. So a loan that is followed by the next within
`_LINGER` *lingers*: the poller does not look, no thread reads, and the next to borrow does so for
free. What ends that: the next loan, if another thread had wanted one meanwhile, or a timer, on the
poller's thread, when there was no loan for `_LINGER`. Messages that come in between wait as long;
as that was a wrong guess, no loan lingers for `_PENALTY` then, which bounds what wrong guesses
cost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

# seconds; a thread that runs keeps the interpreter lock from the poller's for as long
_LINGER = 0.005
_PENALTY = 1.0  # seconds


class Readiness(Protocol):
    """A source of readiness: a poller, or a group in it."""

    @property
    def thread_id(self) -> int | None: ...

    @property
    def modify(self) -> Callable[[int, int], None]: ...

    def add(self, fd: int, handler: Callable[[int], None], events: int = ...) -> None: ...

    def remove(self, fd: int) -> None: ...

    def call_soon(self, callback: Callable[[], None]) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> object: ...


class Lendable:
    """A connection that one thread reads at a time."""

    __slots__ = (
        "_earliest", "_events", "_lent", "_lingers", "_poller", "_reading", "_returned", "_wanted",
        "closed", "fd",
    )  # fmt: skip

    def __init__(self, poller: Readiness, fd: int) -> None:
        self._poller = poller
        self.fd = fd
        self.closed = False
        self._lent = False
        self._wanted = False  # by a thread that did not get it
        self._lingers = False  # a timer looks after it
        self._returned = 0.0  # when the last loan ended
        self._earliest = 0.0  # when one may linger again
        self._reading = threading.Lock()  # held by the thread that reads
        self._events = threading.Lock()  # held while what the poller watches for is changed

    @property
    def readable_by_borrower(self) -> bool:
        return not self.closed

    def receive(self) -> None:
        """Read once and hand on what came; for the poller's thread, or the borrowing one."""
        raise NotImplementedError

    def borrow(self) -> bool:
        """Let the calling thread do the reading until it calls `give_back`; False if it may not."""
        if not self.readable_by_borrower:
            return False
        if not self._reading.acquire(blocking=False):
            self._wanted = True
            # again: the holder may not have seen that
            if not self._reading.acquire(blocking=False):
                return False
        if not self._lent:
            try:
                self._lent = True
                self._update_events()
            except BaseException as error:
                self.give_back(error)
                raise
        return True

    def give_back(self, error: BaseException | None = None) -> None:
        """Let the poller's thread read again: now, or if often borrowed, after a moment of rest.

        Args:
            error: The error that cut the reading short.
        """
        now = time.monotonic()
        if (
            now - self._returned < _LINGER
            and now > self._earliest
            and not self._wanted
            and error is None
        ):
            # borrowed again within a moment: likely once more, so the poller is not told yet
            self._returned = now
            self._reading.release()
            if not self._lingers:
                self._lingers = True
                self._poller.call_later(_LINGER, self._look_after)
            return
        self._returned = now
        self._lent = self._wanted = False
        # first: the poller's thread would find it taken, again and again, and keep the interpreter
        # lock from this thread
        self._reading.release()
        if error is None or isinstance(error, Exception):
            self._update_events()
        else:
            self._cut_short(error)

    def _look_after(self) -> None:
        """Take a loan back, on the poller's thread, unless it was borrowed lately, or is now."""
        now = time.monotonic()
        if now - self._returned < _LINGER:
            self._poller.call_later(_LINGER, self._look_after)
            return
        self._lingers = False
        # if it can't be had, a thread has borrowed it just now, and gives it back itself
        if self._lent and self._reading.acquire(blocking=False):
            # it lingered for nothing
            self._earliest = now + _PENALTY
            self._lent = False
            self._reading.release()
            self._update_events()

    def _look_away(self) -> None:
        """Stop watching for the poller while a borrower reads that has not told the kernel yet."""
        with self._events:
            if self._reading.locked():  # its holder gives it back, and has yet to take the other
                self._watch(False)

    def _update_events(self) -> None:
        with self._events:
            self._watch(not self._lent)

    def _watch(self, read: bool) -> None:
        """Tell the poller what to look for; with `_events` held.

        Args:
            read: Whether the poller's thread may read.
        """
        raise NotImplementedError

    def _cut_short(self, error: BaseException) -> None:
        """End the reading after an exception that is no `Exception`, from a signal handler in the
        main thread: a message may be lost.
        """
        raise NotImplementedError
