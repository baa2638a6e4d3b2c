"""Futures: one result, any number of readers, in threads and event loops.

The thread that receives an answer stores it and wakes whoever waits; decoding it (unpickling runs user code) is left to
the first reader. What ends a wait: the answer, the failure of whoever owed it, the reader's own timeout, or Ctrl-C.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...errors import DeadlockError
from ..net.loan import Lendable
from ..net.waiter import put_back, take_waiter
from .callbacks import UserCallback
from .cancelled import is_cancelled
from .failed_call import FailedCall, Outcome, Unread
from .interrupts import HeldInterrupts
from .source import Source
from .waitable import Waitable
from .waits import Awaited, Prelude, note_wait

if TYPE_CHECKING:
    import asyncio

R = TypeVar("R")

_NEVER = threading.TIMEOUT_MAX
_forks = 0  # how often this process, and those before it, were forked since this module was imported

waited_for: set[Future[Any]] = set()
"""What threads and tasks of this process wait for right now."""

unshown: Prelude | None = None
"""Set by the client while ranks have printed something that may not be shown yet, and have answered since."""


class Future(Waitable, Generic[R]):
    """The result of an operation that goes on elsewhere. Monarch makes them; programs read them.

    Read it with `get` from ordinary code, with ``await`` from async code, as often and from as many threads and loops
    as you like. The operation was started by whoever made the future and does not depend on anyone reading it.

    It is true, as any object: ``if future:`` asks whether there is one. Its result is ``future.get()``.
    """

    __slots__ = (
        "__weakref__", "_callbacks", "_decode", "_decoding", "_done", "_error", "_forks", "_lock", "_name", "_source", "_value",
    )  # fmt: skip

    def __init__(self) -> None:
        raise TypeError("Future cannot be constructed; calls, recv(), stop() and returns_future functions return one")

    _lock: threading.Lock
    _done: bool
    _value: Any
    _error: BaseException | None
    _decode: Callable[[Any], Any] | None
    _decoding: Any  # held by the reader that does it: a lock of its own, as decoding runs code of the program
    _callbacks: list[Callable[[], None]]
    _source: Source | None  # until it is done: the source holds this future, and would keep its result from being freed
    _name: str  # of the source, once it is done
    _forks: int  # how often this process, and those before it, had been forked

    # reading

    def get(self, timeout: float | None = None) -> R:
        """Block until the result is there and return it.

        Args:
            timeout: Seconds to wait, finite and >= 0; None waits until the operation ends.

        Raises:
            TimeoutError: It did not end in time; it goes on, and may be read again later.
            ValueError: `timeout` is negative or not finite.
            DeadlockError: Nothing could end this wait, because the answer needs the code that waits.
            BaseException: What the operation raised.
        """
        if timeout is not None:
            _check_timeout(timeout)
        if not self._done:
            timeout = self._wait(timeout)
        if unshown is not None:
            unshown.wait(timeout)
        error = self._failure(timeout)
        if error is not None:
            # here, so that a traceback shows one line of ours; each raise would add to the traceback of the one before
            raise error.with_traceback(None)
        return self._value  # type: ignore[no-any-return]  # set by whoever made this future for an R

    result = get

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Block until the operation ends; return the exception it raised, or None.

        Raises:
            TimeoutError: The operation did not end within `timeout` seconds.
        """
        if timeout is not None:
            _check_timeout(timeout)
        if not self._done:
            timeout = self._wait(timeout)
        if unshown is not None:
            unshown.wait(timeout)
        return self._failure(timeout)

    def done(self) -> bool:
        """Return True once the result or the error is there. Never blocks."""
        return self._done

    def add_done_callback(self, callback: Callable[[Future[R]], object]) -> None:
        """Call ``callback(self)`` once when the operation ends, at once if it has.

        Added from code that an event loop runs, it runs on that loop. Otherwise it runs on a thread that this process
        keeps for such callbacks, one at a time, in the order of completion; exceptions go to ``threading.excepthook``.
        """
        self._subscribe(UserCallback(callback, self, running_loop()))

    def remove_done_callback(self, callback: Callable[[Future[R]], object]) -> int:
        """Remove a callback that has not been called yet; return how often it had been added."""
        with self._lock:
            kept = [c for c in self._callbacks if not (isinstance(c, UserCallback) and c.callback == callback)]
            removed = len(self._callbacks) - len(kept)
            self._callbacks[:] = kept
        return removed

    def cancel(self) -> bool:
        """Drop the operation unless it has begun. An operation that has begun goes on.

        A call that waits in the mailbox of an actor is taken out, and the future raises `concurrent.futures.CancelledError`.
        A `call` to many ranks is dropped by those that have not begun; the others finish it.

        Returns:
            True if the request was sent; False if the future is done, or its operation can't be dropped. The future tells
            whether the request came in time.
        """
        source = self._source
        return source is not None and source.cancel(self)

    def cancelled(self) -> bool:
        """Return True if `cancel` dropped the operation before it had begun."""
        return self._done and is_cancelled(self._error)

    def __await__(self) -> Generator[Any, None, R]:
        if not self._done:
            yield from self._wait_in_loop().__await__()
        if unshown is not None:
            yield from unshown.wait_in_loop().__await__()
        error = self._failure()
        if error is not None:
            raise error.with_traceback(None)
        return self._value  # type: ignore[no-any-return]  # as in `get`

    def as_asyncio(self) -> asyncio.Future[R]:
        """Return an asyncio future of the running loop with the same outcome. Cancelling it leaves the operation alone.

        Raises:
            RuntimeError: No event loop runs in this thread.
        """
        task: asyncio.Future[R] = _asyncio().get_running_loop().create_task(self._observe())
        return task

    def __repr__(self) -> str:
        state = "pending" if not self._done else "failed" if self._error is not None else "done"
        source = self._source
        what = source.describe() if source is not None else self._name
        return f"<Future {state} {what}>" if what else f"<Future {state}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Future cannot be sent to another process; send a Port, or the value once it is there")

    # for the runtime: making and completing

    @classmethod
    def _new(cls, source: Source | None = None) -> Future[Any]:
        self = object.__new__(cls)
        self._lock = threading.Lock()
        self._decoding = threading.RLock()
        self._done = False
        self._value = self._error = self._decode = None
        self._callbacks = []
        self._source = source
        self._name = ""
        self._forks = _forks
        return self

    def _resolve(self, value: Any, decode: Callable[[Any], Any] | None = None) -> None:
        """Complete it; `decode` turns `value` into the result, in the thread of the first reader."""
        self._complete(value, None, decode)

    def _fail(self, call: FailedCall, make: Callable[[], BaseException]) -> None:
        """Complete it with an error of a call, which `make` makes in the thread of the first reader."""
        if self._done:
            return
        unread = Unread(call, make)
        if self._complete(None, None, unread):
            unread.expect_reader()

    def _reject(self, error: BaseException) -> None:
        self._complete(None, error, None)

    def _give_up(self, error: BaseException) -> None:
        """Let those who wait have this error, and no value that comes for them later."""
        source = self._source
        if source is not None:
            source.abandoned(self)
        self._reject(error)

    def _complete(self, value: Any, error: BaseException | None, decode: Callable[[Any], Any] | None) -> bool:
        """Whether it was still open."""
        with self._lock:
            if self._done:
                return False
            self._value, self._error, self._decode = value, error, decode
            self._done = True
            source, self._source = self._source, None
            if source is not None:
                self._name = source.name
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return True

    def _subscribe(self, callback: Callable[[], None]) -> None:
        """Call `callback` when done, on the thread that completes it: it must be quick."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback()

    def _has_failed(self) -> bool:
        """Whether it is known to have, without reading what came."""
        return self._done and (self._error is not None or isinstance(self._decode, Unread))

    def _noticed(self) -> None:
        """Whoever asked to be called back has been: an error that is in here is known to somebody."""
        if isinstance(self._decode, Unread):
            self._decode.noticed()

    def _unsubscribe(self, callback: Callable[[], None]) -> None:
        if self._done:  # they have been called
            return
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    # waiting

    def _wait(self, timeout: float | None) -> float | None:
        """Wait until it is done; returns the time that is left."""
        connection = self._before_blocking()
        waits = note_wait(self) if timeout is None else None
        waited_for.add(self)
        try:
            asked = timeout
            if connection is not None:
                timeout = self._read_until_done(connection, timeout)
            if not self._done:
                timeout = self._block(timeout, asked)
            return timeout
        finally:
            waited_for.discard(self)
            if waits is not None:
                waits.pop(None, None)

    def _block(self, timeout: float | None, asked: float | None) -> float | None:
        """Wait until another thread completes it, for `timeout` seconds, the rest of what was `asked` for."""
        end = None if timeout is None else time.monotonic() + timeout
        waiter = threading.Lock()
        waiter.acquire()
        wake = waiter.release
        self._subscribe(wake)
        try:
            came = waiter.acquire(timeout=-1 if timeout is None else min(timeout, _NEVER))
        except BaseException:  # Ctrl-C
            self._unsubscribe(wake)
            raise
        if not came:
            self._unsubscribe(wake)
            source = None if self._done else self._source
            if source is not None:
                source.abandoned(self)
            if not self._done:  # in the last moment
                what = f" for {source.describe()}" if source is not None else ""
                text = f"waited {asked:g}s{what}"
                raise TimeoutError(text) if source is None else source.timed_out(text)
        return None if end is None else max(0.0, end - time.monotonic())

    def _read_until_done(self, connection: Lendable, timeout: float | None) -> float | None:
        """Read the connection that the answer comes over, in this thread; returns the time that is left.

        Ends without an answer when the time is up, and where the connection cannot be read here, or no longer.
        """
        try:
            waiter = take_waiter()
        except OSError:  # out of descriptors: the poller's thread reads, as it always can
            return timeout
        end = None if timeout is None else time.monotonic() + timeout
        try:
            with HeldInterrupts(waiter.interrupt) as interrupt:
                if not connection.borrow():
                    return timeout
                try:
                    self._subscribe(waiter.wake)
                    while not self._done and not interrupt.came and connection.readable_by_borrower:
                        left = None if end is None else end - time.monotonic()
                        if left is not None and left <= 0:
                            break
                        if waiter.wait(connection.fd, left):
                            connection.receive()
                    self._unsubscribe(waiter.wake)
                except BaseException as error:
                    connection.give_back(error)
                    raise
                connection.give_back()
        finally:
            put_back(waiter)
        return None if end is None else max(0.0, end - time.monotonic())

    def _before_blocking(self) -> Lendable | None:
        """Refuse what could not end, warn of what is unwise; the connection that the answer comes over, if one is known."""
        self._check_process()
        source = self._source
        if source is not None:
            source.observed(self, None)
            reason = source.deadlock()
            if reason is not None:
                raise DeadlockError(reason)
        if running_loop() is not None and not _in_a_notebook():
            warnings.warn(
                "Blocking get() was called from a running asyncio event loop; it stops everything else on that loop. "
                "Write `await future` instead.",
                UserWarning,
                stacklevel=4,
            )
        return None if source is None else source.connection()

    async def _wait_in_loop(self) -> None:
        self._check_process()
        asyncio = _asyncio()
        loop = asyncio.get_running_loop()
        source = self._source
        if source is not None:
            source.observed(self, loop)
        waiter = loop.create_future()
        here = threading.get_ident()
        expect = getattr(loop, "expect", None)  # an actor's loop can read the connection itself
        if expect is not None and source is not None:
            expect(source.connection())

        def wake() -> None:
            try:
                if threading.get_ident() == here:
                    _set_if_pending(waiter)
                else:
                    loop.call_soon_threadsafe(_set_if_pending, waiter)
            except RuntimeError:  # that loop was closed: nobody waits there any more
                pass

        self._subscribe(wake)
        task = asyncio.current_task(loop) or loop  # where a program drives a coroutine by hand there is none
        waits = note_wait(self, task)
        waited_for.add(self)
        try:
            await waiter
        except BaseException:
            self._unsubscribe(wake)
            if not self._done and source is not None:
                source.abandoned(self)
            raise
        finally:
            waited_for.discard(self)
            if waits is not None:
                waits.pop(task, None)

    def _check_process(self) -> None:
        """Raises:
        RuntimeError: What this waits for comes to another process.
        """
        if self._forks != _forks:
            raise RuntimeError(
                f"{self!r} was made before this process was forked: its result goes to the parent; ask again"
            )

    async def _observe(self) -> R:
        return await self

    def _failure(self, timeout: float | None = None) -> BaseException | None:
        """What it raised, if it did; the first reader makes the value, or the error, from what arrived."""
        if self._decode is not None:
            self._decode_once(timeout)
        return self._error

    def _decode_once(self, timeout: float | None) -> None:
        decoding = self._decoding
        if not decoding.acquire(timeout=-1 if timeout is None else min(timeout, _NEVER)):
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
                self._value, self._error = None, error.with_traceback(None)
            self._decode = None
        finally:
            decoding.release()


class _Original(Source):
    """What a mapped future waits for. The source of the original future knows, and completes, only that one."""

    __slots__ = ("_future", "_source", "name")

    def __init__(self, future: Future[Any], source: Source) -> None:
        self._future = future
        self._source = source
        self.name = source.name

    def describe(self) -> str:
        return self._source.describe()

    def deadlock(self) -> str | None:
        return self._source.deadlock()

    def awaited(self) -> Awaited | None:
        return self._source.awaited()

    def connection(self) -> Lendable | None:
        return self._source.connection()

    def timed_out(self, text: str) -> TimeoutError:
        return self._source.timed_out(text)

    def cancel(self, future: Future[Any]) -> bool:
        return self._source.cancel(self._future)

    def observed(self, future: Future[Any], loop: asyncio.AbstractEventLoop | None) -> None:
        self._source.observed(self._future, loop)

    def abandoned(self, future: Future[Any]) -> None:
        self._source.abandoned(self._future)


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def completed(value: Any = None) -> Future[Any]:
    """A future that is done."""
    future: Future[Any] = Future._new()
    future._resolve(value)
    return future


def map_future(future: Future[Any], convert: Callable[[Any], R]) -> Future[R]:
    """A future of ``convert(result)``; `convert` runs in the thread of the first reader."""
    source = future._source
    mapped: Future[R] = Future._new(None if source is None else _Original(future, source))
    mapped._name = future._name

    def read(_: None) -> R:
        error = future.exception()
        if error is not None:
            raise Outcome(error)
        return convert(future.get())

    def finish() -> None:
        mapped._resolve(None, read)

    future._subscribe(finish)
    return mapped


def _check_timeout(timeout: float) -> None:
    if not isinstance(timeout, (int, float)) or not math.isfinite(timeout) or timeout < 0:
        raise ValueError(f"invalid timeout {timeout!r}: expected a non-negative, finite number of seconds, or None")


def _set_if_pending(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _asyncio() -> Any:
    """asyncio, which costs more to import than all of this package: only programs that use it pay."""
    import asyncio

    return asyncio


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    module: Any = sys.modules.get("asyncio.events")
    loop: asyncio.AbstractEventLoop | None = module._get_running_loop() if module is not None else None
    return loop


def _in_a_notebook() -> bool:
    """Whether this is the thread of a notebook that runs its cells: one after the other, whatever a cell waits for."""
    kernel: Any = sys.modules.get("ipykernel.kernelapp")
    is_kernel = kernel is not None and kernel.IPKernelApp.initialized()
    return is_kernel and threading.current_thread() is threading.main_thread()
