"""What `concurrent.futures.wait` and `as_completed` ask of a future: a lock, a state, and a list of who waits.

They read the state of all futures, and put themselves on their lists, with all the locks held. Here the lock holds nobody up:
what a future said while it was taken stays what it says, until it is let go. So whoever completes it never waits for a reader.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from ...errors import DeadlockError

if TYPE_CHECKING:
    from .future import Future


class Waitable:
    """Base of futures. Its one slot is empty until somebody waits in that way."""

    __slots__ = ("_outside",)
    _outside: _Outside

    @property
    def _condition(self) -> _Outside:
        try:
            return self._outside
        except AttributeError:
            future: Any = self  # what this is the base of
            with future._lock:
                if not hasattr(self, "_outside"):
                    self._outside = _Outside(future)
                return self._outside

    _waiters = _condition

    @property
    def _state(self) -> str:
        return self._condition.state()


class _Outside:
    """The lock and the list of one future, which holds it."""

    def __init__(self, future: Future[Any]) -> None:
        self._weak_future = weakref.ref(future)
        self._lock = threading.RLock()
        self._was_done: bool | None = None  # when the lock was taken
        self._told: dict[Any, Any] = {}  # from waiter to callback

    @property
    def _future(self) -> Future[Any]:
        future = self._weak_future()
        assert future is not None, "whoever waits for it holds it"
        return future

    def acquire(self) -> None:
        self._lock.acquire()
        self._was_done = self._future.done()

    def release(self) -> None:
        self._was_done = None
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def state(self) -> str:
        done = self._future.done() if self._was_done is None else self._was_done
        return "FINISHED" if done else "PENDING"

    def append(self, waiter: Any) -> None:
        """Tell `waiter` when the future is done, unless the state that it has read says so; with the lock held."""
        future = self._future
        if self._was_done:
            return
        source = future._source
        if source is not None:
            source.observed(future, None)
            reason = source.deadlock()
            if reason is not None:
                raise DeadlockError(reason)

        def tell() -> None:
            (waiter.add_exception if future._has_failed() else waiter.add_result)(future)

        self._told[waiter] = tell
        future._subscribe(tell)

    def remove(self, waiter: Any) -> None:
        told = self._told.pop(waiter, None)
        if told is not None:
            self._future._unsubscribe(told)
