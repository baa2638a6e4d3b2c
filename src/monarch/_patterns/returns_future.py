"""Async functions with results that can be read with ``get()`` as well as with ``await``."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .._core.calls.cancelled import cancelled_error
from .._core.calls.function_kinds import is_async_function
from .._core.calls.future import Future
from .._core.calls.pending import FutureState, PendingOperation
from .._core.calls.promise import Promise

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
R = TypeVar("R")


class _Body(PendingOperation):
    """An async function that its first reader starts.

    On the reader's loop, or on a thread with a loop of its own.
    """

    __slots__ = ("_context", "_lock", "_make", "_started", "_task", "_thread", "name")

    def __init__(self, name: str, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.name = f"{name}()"
        self._make = make
        self._context = copy_context()
        self._lock = threading.Lock()
        self._started = False
        self._thread: int | None = None  # where the body runs
        self._task: asyncio.Task[None] | None = None  # kept: a loop holds its tasks only weakly

    def deadlock(self) -> str | None:
        if self._thread == threading.get_ident():
            return f"get() would stop the event loop that runs {self.name}; write `await` instead"
        return None

    def observed(self, future: FutureState, loop: asyncio.AbstractEventLoop | None) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
        promise = Promise.of(future)
        if loop is None:
            run = functools.partial(self._context.run, self._run_here, promise)
            threading.Thread(target=run, name=f"monarch-{self.name}", daemon=True).start()
            return
        import asyncio  # inside, because programs that never use it should not pay for it

        self._thread = threading.get_ident()
        self._task = self._context.run(loop.create_task, self._run(promise))
        # one that is cancelled before its first step ends without having run
        self._task.add_done_callback(lambda _: promise.reject(asyncio.CancelledError()))

    def cancel(self, future: FutureState) -> bool:
        with self._lock:
            if self._started:
                return False
            self._started = True
        Promise.of(future).reject(cancelled_error(self.name))
        return True

    def _run_here(self, promise: Promise[Any]) -> None:
        import asyncio

        try:
            asyncio.run(self._run(promise))
        except BaseException as error:
            # the body's own, which its readers get; or no loop could be made
            promise.reject(error)

    async def _run(self, promise: Promise[Any]) -> None:
        self._thread = threading.get_ident()
        try:
            promise.resolve(await self._make())
        except BaseException as error:
            promise.reject(error)
            if not isinstance(error, Exception):
                raise


def returns_future(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Future[R]]:
    """Make an async function return a `Future`, readable with ``get()`` and with ``await``.

    The body starts when the future is first read and runs once: on the loop of the first reader
    that awaits, or on a thread of its own when the first reader blocks. A reader's timeout ends
    only that reader's wait.

    Args:
        function: The ``async def``.

    Raises:
        TypeError: `function` is not an ``async def``.
    """
    if not is_async_function(function):
        raise TypeError(f"returns_future needs an `async def`, got {function!r}")

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> Future[R]:
        promise: Promise[R] = Promise(
            _Body(function.__name__, functools.partial(function, *args, **kwargs))
        )
        return promise.future

    return call
