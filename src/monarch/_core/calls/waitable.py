"""The face of a future for `concurrent.futures`, a lock, a state and a list of waiters, and for
asyncio, a coroutine.

`concurrent.futures.wait` and `as_completed` read the state of all futures, and put themselves on
their lists, with all the locks held. Here the lock blocks no thread: what a future said while it
was taken stays what it says, until it is let go. So its completion never waits for a reader.
Imported with the first future that is waited for in that way.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from .pending import has_failed, subscribe, unsubscribe
from .waiting import running_loop

if TYPE_CHECKING:
    from .future import Future


class FuturesAdapter:
    """The lock, the list and the tasks of one future, which holds it."""

    def __init__(self, future: Future[Any]) -> None:
        self._weak_future = weakref.ref(future)
        self._lock = threading.RLock()
        self._was_done: bool | None = None  # when the lock was taken
        self._told: dict[Any, Any] = {}  # from waiter to callback
        # each task that was made of the future has a wait of its own
        self._steps: dict[object, Generator[Any, None, Any]] = {}

    @property
    def _future(self) -> Future[Any]:
        future = self._weak_future()
        assert future is not None, "those who wait for it hold it"
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

    def step(self, advance: Callable[[Generator[Any, None, Any]], Any]) -> Any:
        """Take the wait of the current task a step on: to what it yields, or to its end."""
        task = _current()
        if task not in self._steps:
            self._steps[task] = self._future.__await__()
        try:
            return advance(self._steps[task])
        except BaseException:  # a `StopIteration` where there is a result
            self._steps.pop(task, None)
            raise

    def close(self) -> None:
        steps = self._steps.pop(_current(), None)
        if steps is not None:
            steps.close()


def _current() -> object:
    """The task that is being run; the thread, where a program drives a future by hand."""
    loop = running_loop()
    task = None if loop is None else sys.modules["asyncio"].current_task(loop)
    return task or threading.get_ident()
