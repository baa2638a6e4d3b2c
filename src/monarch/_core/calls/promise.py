"""Promises: the side of a future that completes it.

Programs hold futures; only the engine and its planes hold promises.
"""

from __future__ import annotations

from _thread import RLock  # what `threading` gives, without the Python function around it
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..._lazy import lazy_logger
from ..net.loan import Lendable
from . import pending
from .failed_call import FailedCall, Outcome, Unread
from .future import Future
from .pending import Described, FutureState, PendingCall, PendingOperation, operation_of, subscribe

if TYPE_CHECKING:
    import asyncio

R = TypeVar("R")
logger = lazy_logger("monarch.runtime")


class Promise(Generic[R]):
    """Completes a future, once, from any thread; later results are dropped.

    An operation with one future is best both: ``class Question(PendingOperation, Promise)``, which
    is one object less.

    Args:
        operation: The operation behind the future: a text, or an object with all that is known of
            it.
        kind: The class of the future.

    Attributes:
        future: The future for readers.
    """

    __slots__ = ("future",)
    future: Future[R]

    def __init__(
        self, operation: PendingOperation | str | None = None, kind: type[Future[R]] = Future
    ) -> None:
        # `Future()` raises, for programs
        self.future = future = object.__new__(kind)
        future._done = False
        future._value = future._error = future._decode = future._decoding = None
        future._callbacks = ()
        future._operation = Described(operation) if type(operation) is str else operation  # type: ignore[assignment]
        future._name = ""
        future._forks = pending.forks

    @classmethod
    def of(cls, future: FutureState) -> Promise[Any]:
        """Return the promise of a future that is there already.

        For its operation, and for what ends the waits of others.
        """
        promise: Promise[Any] = object.__new__(Promise)
        promise.future = future  # type: ignore[assignment]  # the state of a future is that future
        return promise

    def resolve(self, value: Any, decode: Callable[[Any], Any] | None = None) -> None:
        """Complete it with a result.

        Args:
            value: The result, or what it is decoded from.
            decode: Makes the result of `value`, in the thread of the first reader.
        """
        self._complete(value, None, decode)

    def reject(self, error: BaseException) -> None:
        """Complete it with an error, which its readers raise."""
        self._complete(None, error, None)

    def fail(self, call: FailedCall, make: Callable[[], BaseException]) -> None:
        """Complete it with an error of a call, made by `make` in the thread of the first reader."""
        if self.future._done:
            return
        unread = Unread(call, make)
        if self._complete(None, None, unread):
            unread.expect_reader()

    def give_up(self, error: BaseException) -> None:
        """Let those who wait have this error, and no value that comes for them later."""
        operation = self.future._operation
        if operation is not None:
            operation.abandoned(self.future)
        self.reject(error)

    def _complete(
        self, value: Any, error: BaseException | None, decode: Callable[[Any], Any] | None
    ) -> bool:
        """Complete the future, and return whether it was still open."""
        future = self.future
        with pending.changing:
            if future._done:
                return False
            future._value, future._error, future._decode = value, error, decode
            if decode is not None:
                future._decoding = RLock()
            # last of the state: readers look at it without the lock
            future._done = True
            operation, future._operation = future._operation, None
            if operation is not None:
                future._name = operation.name
            # under the lock: a callback subscribed from now on sees that it is done, and is called
            # at once
            callbacks, future._callbacks = future._callbacks, ()
        # out of the lock: a callback may subscribe to others
        for callback in callbacks:
            try:
                callback()
            except Exception:
                # no thread for a callback of the program, for one: others wait to be woken
                logger.exception("a callback of %r failed", future)
        return True


class _Original(PendingOperation):
    """The operation of a future that follows another.

    Only the original future is known to, and completed by, its operation.
    """

    __slots__ = ("_future", "_operation", "name")

    def __init__(self, future: FutureState, operation: PendingOperation) -> None:
        self._future = future
        self._operation = operation
        self.name = operation.name

    def describe(self) -> str:
        return self._operation.describe()

    def deadlock(self) -> str | None:
        return self._operation.deadlock()

    def awaited(self) -> PendingCall | None:
        return self._operation.awaited()

    def connection(self) -> Lendable | None:
        return self._operation.connection()

    def timed_out(self, text: str) -> TimeoutError:
        return self._operation.timed_out(text)

    def cancel(self, future: FutureState) -> bool:
        return self._operation.cancel(self._future)

    def observed(self, future: FutureState, loop: asyncio.AbstractEventLoop | None) -> None:
        self._operation.observed(self._future, loop)

    def abandoned(self, future: FutureState) -> None:
        self._operation.abandoned(self._future)


def completed(value: Any = None) -> Future[Any]:
    """A future that is done."""
    promise: Promise[Any] = Promise()
    promise.resolve(value)
    return promise.future


def map_future(future: Future[Any], convert: Callable[[Any], R]) -> Future[R]:
    """A future of ``convert(result)``; `convert` runs in the thread of the first reader."""

    def read() -> R:
        error = future.exception()
        if error is not None:
            raise Outcome(error)
        return convert(future.get())

    return after(future, read)


def after(future: Future[Any], read: Callable[[], R]) -> Future[R]:
    """Return a future that is done when `future` is.

    `read` makes its result, in the thread of the first reader.
    """
    operation = operation_of(future)
    following: Promise[R] = Promise(None if operation is None else _Original(future, operation))
    following.future._name = future._name
    subscribe(future, lambda: following.resolve(None, lambda _: read()))
    return following.future
