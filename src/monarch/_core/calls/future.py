"""Futures: one result, any number of readers, in threads and event loops.

The thread that receives an answer stores it and wakes the waiting threads; decoding it (unpickling
runs user code) is left to the first reader. What ends a wait: the answer, the failure of the actor
or process that owed it, the reader's own timeout, or Ctrl-C.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..._unsendable import explain
from ..._used_as_result import UsedAsResult
from ..wire.frame import Frame
from . import pending
from .callbacks import callback_thread, continuation_thread
from .cancelled import is_cancelled
from .failed_call import Outcome
from .pending import FutureState, notice, subscribe
from .waiting import LONGEST, needed_loop, running_loop, steps_in_loop, wait
from .waits import Prelude

R = TypeVar("R")

if TYPE_CHECKING:
    import asyncio

    from .waitable import FuturesAdapter

    class _Coroutine(Coroutine[Any, Any, R], Generic[R]):
        pass
else:
    _Coroutine = Generic  # `send`, `throw` and `close` are what makes it one, also for asyncio

pending_output: Prelude | None = None
"""Set by the client while ranks have printed something that may not be shown yet, and have answered
since.
"""


class Future(FutureState, UsedAsResult, _Coroutine[R]):
    """The result of an operation that goes on elsewhere. Monarch makes them; programs read them.

    Read it with `get` from ordinary code, with ``await`` from async code, as often and from as many
    threads and loops as you like. The operation was started together with the future and does not
    depend on anyone reading it.

    What asyncio does with a coroutine it does with a future: ``asyncio.run(future)``,
    ``asyncio.create_task(future)``. Each such task waits for the same result. To
    `concurrent.futures` it is one of theirs, which programs can't complete.

    It is true, as any object: ``if future:`` asks whether there is one. Its result is
    ``future.get()``.
    """

    __slots__ = ("_adapter",)
    _adapter: FuturesAdapter  # only where it is waited for from outside

    def __init__(self) -> None:
        raise TypeError(
            "Future cannot be constructed; calls, recv(), stop() and returns_future functions"
            " return one"
        )

    def get(self, timeout: float | None = None) -> R:
        """Block until the result is there and return it.

        Args:
            timeout: Seconds to wait, finite and >= 0; None waits until the operation ends.

        Raises:
            TimeoutError: It did not end in time; it goes on, and may be read again later.
            ValueError: `timeout` is negative or not finite.
            DeadlockError: Nothing could end this wait, because the answer needs the code that
                waits.
            BaseException: The error of the operation.
        """
        if timeout is not None:
            _check_timeout(timeout)
        if not self._done:
            timeout = wait(self, timeout)
        if pending_output is not None:
            pending_output.wait(timeout)
        if self._decode is not None:  # as `_failure`, without a call
            self._decode_once(timeout)
        error = self._error
        if error is not None:
            # here, so that a traceback shows one line of ours; each raise would add to the
            # traceback of the one before
            raise error.with_traceback(None)
        # set by the operation, which made this future for an R
        return self._value  # type: ignore[no-any-return]

    result = get

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Block until the operation ends; return the exception it raised, or None.

        Args:
            timeout: As for `get`.

        Raises:
            TimeoutError: The operation did not end within `timeout` seconds.
        """
        if timeout is not None:
            _check_timeout(timeout)
        if not self._done:
            timeout = wait(self, timeout)
        if pending_output is not None:
            pending_output.wait(timeout)
        return self._failure(timeout)

    def done(self) -> bool:
        """Return True once the result or the error is there. Never blocks."""
        return self._done

    def running(self) -> bool:
        """Return True until the result or the error is there: the operation began with the future.

        Unlike those of a thread pool, some of these can be dropped all the same, by `cancel`.
        """
        return not self._done

    def add_done_callback(self, callback: Callable[[Future[R]], object]) -> None:
        """Call ``callback(self)`` once when the operation ends, at once if it has.

        Added from code that an event loop runs, it runs on that loop. Otherwise it runs on a thread
        that this process keeps for such callbacks, one at a time, in the order of completion;
        exceptions go to ``threading.excepthook``.

        Args:
            callback: Called with this future.
        """
        subscribe(self, _UserCallback(callback, self, running_loop()))

    def remove_done_callback(self, callback: Callable[[Future[R]], object]) -> int:
        """Take back what `add_done_callback` was given, and return how often it was.

        Args:
            callback: That function, or one that is equal to it.
        """
        with pending.changing:
            before = self._callbacks
            kept = [each for each in before if getattr(each, "callback", None) != callback]
            self._callbacks = tuple(kept)
            return len(before) - len(kept)

    def cancel(self) -> bool:
        """Drop the operation unless it has begun. An operation that has begun goes on.

        A call that waits in the mailbox of an actor is taken out, and the future raises
        `concurrent.futures.CancelledError`. A `call` to many ranks is dropped by those that have
        not begun; the others finish it.

        Returns:
            True if the request was sent; False if the future is done, or its operation can't be
            dropped. The future tells whether the request came in time.
        """
        # now, as the I/O thread makes its error, and imports nothing; few programs cancel
        import concurrent.futures  # noqa: F401

        operation = self._operation
        return operation is not None and operation.cancel(self)

    def cancelled(self) -> bool:
        """Return True if `cancel` dropped the operation before it had begun."""
        return self._done and is_cancelled(self._error)

    def __await__(self) -> Generator[Any, None, R]:
        if not self._done:
            yield from steps_in_loop(self)
        if pending_output is not None:
            yield from pending_output.wait_in_loop().__await__()
        error = self._failure()
        if error is not None:
            raise error.with_traceback(None)
        return self._value  # type: ignore[no-any-return]  # as in `get`

    def send(self, value: Any) -> Any:
        """Wait one step on, for the task that asyncio has made of this future.

        Args:
            value: None, as asyncio sends it.

        Returns:
            The object that the task is to wait for.

        Raises:
            StopIteration: The future is done; with its result.
        """
        return self._condition.step(lambda steps: steps.send(value))

    def throw(self, *error: Any) -> Any:
        """Raise an error where that task waits; the operation goes on.

        Args:
            error: As for the method of generators.

        Returns:
            As `send`.
        """
        return self._condition.step(lambda steps: steps.throw(*error))

    def close(self) -> None:
        """End the wait of that task; the operation goes on."""
        self._condition.close()

    def as_asyncio(self) -> asyncio.Future[R]:
        """Return an asyncio future of the running loop with the same outcome.

        Cancelling it leaves the operation alone.

        Raises:
            RuntimeError: No event loop runs in this thread.
        """
        return needed_loop(self).create_task(self._observe())

    def __repr__(self) -> str:
        state = "pending" if not self._done else "failed" if self._error is not None else "done"
        operation = self._operation
        what = operation.describe() if operation is not None else self._name
        return f"<Future {state} {what}>" if what else f"<Future {state}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a Future cannot be sent to another process; send a Port, or the value once it is there"
        )

    @property
    def _condition(self) -> FuturesAdapter:
        """The lock that `concurrent.futures.wait` and `as_completed` take."""
        try:
            return self._adapter
        except AttributeError:
            # here: few programs wait in that way, and every one would pay for it
            from .waitable import FuturesAdapter

            with pending.changing:
                if not hasattr(self, "_adapter"):
                    self._adapter = FuturesAdapter(self)
                return self._adapter

    _waiters = _condition

    @property
    def _state(self) -> str:
        return self._condition.state()

    @property
    def __name__(self) -> str:
        """The name of the operation: coroutines have one, which tasks and trio's errors show."""
        operation = self._operation
        name = self._name if operation is None else operation.name
        return name.removesuffix("()") or "Future"

    async def _observe(self) -> R:
        return await self

    @property  # type: ignore[misc]  # `object` has a setter, which changes the real class
    def __class__(self) -> Any:
        """The class to `isinstance`, for which this is a future of `concurrent.futures` as well.

        `asyncio.wrap_future` asks, among others. A base would give each future a dictionary.
        """
        theirs: Any = sys.modules.get("concurrent.futures")
        return type(self) if theirs is None else _class_with(type(self), theirs.Future)

    def _failure(self, timeout: float | None = None) -> BaseException | None:
        """Return the exception of the future, if any; the first reader decodes the reply."""
        if self._decode is not None:
            self._decode_once(timeout)
        return self._error

    def _decode_once(self, timeout: float | None) -> None:
        decoding = self._decoding
        if decoding is None:  # another reader has just done it
            return
        if not decoding.acquire(timeout=-1 if timeout is None else min(timeout, LONGEST)):
            raise TimeoutError(f"waited for {self._name}, whose answer another thread is reading")
        try:
            decode = self._decode
            if decode is None:
                return
            try:
                self._value = decode(self._value)
            except Outcome as outcome:
                self._value, self._error = None, outcome.error
            except Exception as error:
                if isinstance(self._value, Frame):
                    rank = getattr(self, "_rank", None)
                    place = "" if rank is None else f" on {rank!r}"
                    explain(error, f"what came of {self._name}{place} could not be read here")
                self._value, self._error = None, error.with_traceback(None)
            self._decode = self._decoding = None  # in this order
        finally:
            decoding.release()


@functools.cache
def _class_with(ours: type, theirs: type) -> type:
    names = {"__slots__": (), "__module__": ours.__module__, "__qualname__": ours.__qualname__}
    return type(ours.__name__, (ours, theirs), names)


class _UserCallback:
    """A callback that a program attached: runs on its event loop, or on the callback thread."""

    __slots__ = ("_context", "_future", "_loop", "callback")

    def __init__(
        self,
        callback: Callable[[Future[Any]], object],
        future: Future[Any],
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self.callback = callback
        self._future = future
        self._loop = loop
        self._context = copy_context()

    def __call__(self) -> None:
        notice(self._future)
        if self._loop is None:
            callback_thread.jobs().put(
                functools.partial(self._context.run, self.callback, self._future)
            )
            return
        with suppress(RuntimeError):  # that loop was closed: its callbacks are gone
            self._loop.call_soon_threadsafe(self.callback, self._future, context=self._context)


def when_done(future: Future[Any], callback: Callable[[Future[Any]], object]) -> None:
    """`add_done_callback` for what the engine goes on with.

    Neither on an event loop nor beside callbacks of the program, as both may stand in a ``get``
    that waits for this very callback.
    """
    go_on = functools.partial(copy_context().run, callback, future)

    def done() -> None:
        notice(future)
        continuation_thread.jobs().put(go_on)

    subscribe(future, done)


def _check_timeout(timeout: float) -> None:
    if not isinstance(timeout, (int, float)) or not math.isfinite(timeout) or timeout < 0:
        raise ValueError(
            f"invalid timeout {timeout!r}: expected a non-negative, finite number of seconds, or"
            " None"
        )
