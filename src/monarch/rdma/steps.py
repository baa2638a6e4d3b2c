"""Transfers that follow each other: a generator yields a future, and goes on when that is done.

No thread waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from .._core.plane import Promise, operation_of, subscribe
from ..actor import Future
from .paths.path import Deadline
from .plane import Plane

R = TypeVar("R")
Steps = Generator[Future[Any], Any, R]


def in_turn(plane: Plane, steps: Steps[R], what: str) -> Future[R]:
    """The future of what the generator returns, or raises.

    It begins in this thread, and goes on in one of the plane's as soon as it has to wait.

    Args:
        plane: The plane of this process.
        steps: A generator that yields what it waits for.
        what: Description of the wait, for time-out errors.
    """
    finished: Promise[R] = Promise(what)
    _go_on(plane, steps, finished, None)
    return finished.future


def _go_on(plane: Plane, steps: Steps[R], finished: Promise[R], before: Future[Any] | None) -> None:
    while before is None or before.done():
        try:
            before = _next(steps, before)
        except StopIteration as end:
            finished.resolve(end.value)
            return
        except Exception as error:
            error.__traceback__ = None  # its frames hold references to the memory
            finished.reject(error)
            return
    waited_for = before
    subscribe(
        waited_for, lambda: plane.workers.submit(lambda: _go_on(plane, steps, finished, waited_for))
    )


def _next(steps: Steps[Any], before: Future[Any] | None) -> Future[Any]:
    if before is None:
        return next(steps)
    try:
        answer = before.get()
    except Exception as error:
        return steps.throw(error)
    return steps.send(answer)


def pause(plane: Plane, seconds: float) -> Future[None]:
    """Done after a while."""
    over: Promise[None] = Promise("a pause")
    plane.hub.poller.call_later(seconds, lambda: over.resolve(None))
    return over.future


def within(plane: Plane, future: Future[R], deadline: Deadline) -> Future[R]:
    """`future`, or a `TransferTimeoutError` if that takes too long."""
    if future.done():
        return future
    either: Promise[R] = Promise(operation_of(future))
    timer = plane.hub.poller.call_later(deadline.left(), lambda: either.reject(deadline.error()))
    subscribe(future, lambda: either.resolve(None, lambda _: future.get()))
    subscribe(either.future, timer.cancel)
    return either.future
