"""How threads and tasks wait for a future.

By reading the connection that the answer comes over, or until they are woken.
"""

from __future__ import annotations

import math
import sys
import threading
import time
import types
import warnings
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

from ..._interrupts import LOOK, HeldInterrupts
from ..._lazy import whole
from ..net.loan import Lendable
from ..net.waiter import put_back, take_waiter
from . import pending
from .pending import FutureState, subscribe, unsubscribe
from .waits import note_wait

if TYPE_CHECKING:
    import asyncio

LONGEST = threading.TIMEOUT_MAX

new_lock: Callable[[], Any] = threading.Lock
"""Makes what a thread waits at; replaced where threads take turns."""

waited_for: dict[FutureState, float] = {}
"""What threads and tasks of this process wait for right now, and since when, as of `time.time`."""


def wait(future: FutureState, timeout: float | None) -> float | None:
    """Wait until it is done; returns the time that is left."""
    connection = _before_blocking(future)
    waits = note_wait(future) if timeout is None else None
    waited_for[future] = time.time()
    try:
        asked = timeout
        if connection is not None:
            timeout = _read_until_done(future, connection, timeout)
        return timeout if future._done else block(future, timeout, asked)
    finally:
        waited_for.pop(future, None)
        if waits is not None:
            waits.pop(None, None)


def block(future: FutureState, timeout: float | None, asked: float | None = None) -> float | None:
    """Wait until another thread completes it; returns the time that is left.

    Neither noted nor warned of, as what `wait` does.

    Args:
        timeout: Seconds to wait; None waits until the operation ends.
        asked: The seconds that a `TimeoutError` names, where some of them are used up.
    """
    end = None if timeout is None else time.monotonic() + timeout
    waiter = new_lock()
    waiter.acquire()
    # a bare lock, not a `Condition` or an `Event`: each of those makes several objects per wait
    wake = waiter.release
    subscribe(future, wake)
    try:
        came = _acquire(waiter, timeout)
        limit = timeout if asked is None else asked
        while not came and limit and pending.debugged and _is_debugged(future):
            while not came and _is_debugged(future):
                came = waiter.acquire(timeout=1.0)
            # which begins anew behind the debugger
            came = came or _acquire(waiter, limit)
    except BaseException:  # Ctrl-C
        unsubscribe(future, wake)
        raise
    if not came:
        unsubscribe(future, wake)
        operation = None if future._done else future._operation
        if operation is not None:
            operation.abandoned(future)
        if not future._done:  # in the last moment
            what = f" for {operation.describe()}" if operation is not None else ""
            text = f"waited {timeout if asked is None else asked:g}s{what}"
            raise TimeoutError(text) if operation is None else operation.timed_out(text)
    return None if end is None else max(0.0, end - time.monotonic())


def _acquire(lock: Any, timeout: float | None) -> bool:
    """Acquire a lock within `timeout` seconds."""
    if threading.current_thread() is not threading.main_thread() or new_lock is not threading.Lock:
        return bool(lock.acquire(timeout=-1 if timeout is None else min(timeout, LONGEST)))
    left = math.inf if timeout is None else timeout
    while not (came := lock.acquire(timeout=min(left, LOOK))) and left > LOOK:
        left -= LOOK
    return bool(came)


def _read_until_done(
    future: FutureState, connection: Lendable, timeout: float | None
) -> float | None:
    """Read the connection that the answer comes over, in this thread.

    Returns the time that is left.

    Ends without an answer when the time is up, and where the connection cannot be read here, or no
    longer.
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
                subscribe(future, waiter.wake)
                while not future._done and not interrupt.came and connection.readable_by_borrower:
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    if waiter.wait(connection.fd, left):
                        connection.receive()
                unsubscribe(future, waiter.wake)
            except BaseException as error:
                connection.give_back(error)
                raise
            connection.give_back()
    finally:
        put_back(waiter)
    return None if end is None else max(0.0, end - time.monotonic())


def _before_blocking(future: FutureState) -> Lendable | None:
    """Refuse a wait that could not end, and warn of one that is unwise.

    Returns the connection that the answer comes over, if one is known.
    """
    _check_process(future)
    operation = future._operation
    if operation is not None:
        operation.before_blocking(future)
    if in_a_loop():
        warnings.warn(
            "Blocking get() was called from a running asyncio event loop; it stops everything else"
            " on that loop. Write `await future` instead.",
            UserWarning,
            stacklevel=4,
        )
    return None if operation is None else operation.connection()


def _is_debugged(future: FutureState) -> bool:
    operation = future._operation
    return operation is not None and pending.is_debugged(operation.unanswered())


def steps_in_loop(future: FutureState) -> Generator[Any, None, None]:
    """Let the running task wait until it is done."""
    _check_process(future)
    loop = needed_loop(future)
    operation = future._operation
    if operation is not None:
        operation.observed(future, loop)
    waiter = loop.create_future()
    here = threading.get_ident()
    expect = getattr(loop, "expect", None)  # an actor's loop can read the connection itself
    if expect is not None and operation is not None:
        expect(operation.connection())

    def wake() -> None:
        try:
            if threading.get_ident() == here:
                _set_if_pending(waiter)
            else:
                loop.call_soon_threadsafe(_set_if_pending, waiter)
        except RuntimeError:  # that loop was closed, and its waits with it
            pass

    subscribe(future, wake)
    # where a program drives a coroutine by hand there is none
    task = sys.modules["asyncio"].current_task(loop) or loop
    waits = note_wait(future, task)
    waited_for[future] = time.time()
    try:
        yield from waiter
    except BaseException:
        unsubscribe(future, wake)
        if not future._done and operation is not None:
            operation.abandoned(future)
        raise
    finally:
        waited_for.pop(future, None)
        if waits is not None:
            waits.pop(task, None)


# the same for `await`; of an `async def` that a signal kept from beginning, the interpreter warns
wait_in_loop: Callable[[FutureState], Awaitable[None]] = types.coroutine(steps_in_loop)


def _check_process(future: FutureState) -> None:
    """Refuse to wait in a process that the result will not reach.

    Raises:
        RuntimeError: The awaited result comes to another process.
    """
    if future._forks != pending.forks:
        raise RuntimeError(
            f"{future!r} was made before this process was forked: its result goes to the parent;"
            " ask again"
        )


def _set_if_pending(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def needed_loop(future: FutureState) -> asyncio.AbstractEventLoop:
    """The event loop that runs in this thread.

    Raises:
        RuntimeError: None does.
    """
    loop = running_loop()
    if loop is None:
        raise RuntimeError(
            f"{future!r} can only be awaited where an asyncio event loop runs, and none runs in"
            " this thread. Write `await trio.to_thread.run_sync(future.get)` under trio, `await"
            " anyio.to_thread.run_sync(future.get)` under anyio, and `future.get()` in ordinary"
            " code"
        )
    return loop


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    module = whole("asyncio.events")
    loop: asyncio.AbstractEventLoop | None = (
        module._get_running_loop() if module is not None else None
    )
    return loop


def in_a_loop() -> bool:
    """Return whether this thread would hold up an event loop if it blocked."""
    return running_loop() is not None and not _in_a_notebook()


def _in_a_notebook() -> bool:
    """Return whether this thread runs the cells of a notebook.

    They run one after the other, also while a cell waits.
    """
    kernel = whole("ipykernel.kernelapp")
    is_kernel = kernel is not None and kernel.IPKernelApp.initialized()
    return is_kernel and threading.current_thread() is threading.main_thread()
