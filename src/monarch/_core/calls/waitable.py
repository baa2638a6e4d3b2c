"""The protocol of `concurrent.futures.wait` and `as_completed`: a lock, a state, a list of waiters.

They read the state of all futures, and put themselves on their lists, with all the locks held. Here
the lock holds nobody up: what a future said while it was taken stays what it says, until it is let
go. So whoever completes it never waits for a reader. Imported with the first future that is waited
for in that way.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

from .pending import FutureState, has_failed, subscribe, unsubscribe


class Outside:
    """The lock and the list of one future, which holds it."""

    def __init__(self, future: FutureState) -> None:
        self._weak_future = weakref.ref(future)
        self._lock = threading.RLock()
        self._was_done: bool | None = None  # when the lock was taken
        self._told: dict[Any, Any] = {}  # from waiter to callback

    @property
    def _future(self) -> FutureState:
        future = self._weak_future()
        assert future is not None, "whoever waits for it holds it"
        return future

    def acquire(self) -> None:
        self._lock.acquire()
        self._was_done = self._future._done

    def release(self) -> None:
        self._was_done = None
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *exc: object) -> None:
        self.release()

    def state(self) -> str:
        done = self._future._done if self._was_done is None else self._was_done
        return "FINISHED" if done else "PENDING"

    def append(self, waiter: Any) -> None:
        """Tell `waiter` when the future is done, unless the state that it has read says so.

        Called with the lock held.
        """
        future = self._future
        if self._was_done:
            return
        operation = future._operation
        if operation is not None:
            operation.before_blocking(future)

        def tell() -> None:
            (waiter.add_exception if has_failed(future) else waiter.add_result)(future)

        self._told[waiter] = tell
        subscribe(future, tell)

    def remove(self, waiter: Any) -> None:
        told = self._told.pop(waiter, None)
        if told is not None:
            unsubscribe(self._future, told)
