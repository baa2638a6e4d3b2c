"""Transfers that follow each other: a generator yields a future, and goes on when that is done. No thread waits meanwhile."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from .._core.calls.future import Future
from .._core.calls.source import Described
from .paths.path import Deadline
from .plane import Plane

R = TypeVar("R")
Steps = Generator[Future[Any], Any, R]


def in_turn(plane: Plane, steps: Steps[R], what: str) -> Future[R]:
    """The future of what the generator returns, or raises.

    It begins in this thread, and goes on in one of the plane's as soon as it has to wait.

    Args:
        what: For time-outs: what is waited for.
    """
    finished: Future[R] = Future._new(Described(what))
    _go_on(plane, steps, finished, None)
    return finished


def _go_on(plane: Plane, steps: Steps[R], finished: Future[R], before: Future[Any] | None) -> None:
    while before is None or before.done():
        try:
            before = _next(steps, before)
        except StopIteration as end:
            finished._resolve(end.value)
            return
        except Exception as error:
            error.__traceback__ = None  # whose frames hold the memory
            finished._reject(error)
            return
    waited_for = before
    waited_for._subscribe(lambda: plane.workers.submit(lambda: _go_on(plane, steps, finished, waited_for)))


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
    over: Future[None] = Future._new(Described("a pause"))
    plane.node.poller.call_later(seconds, lambda: over._resolve(None))
    return over


def within(plane: Plane, future: Future[R], deadline: Deadline) -> Future[R]:
    """`future`, or a `TransferTimeoutError` if that takes too long."""
    if future.done():
        return future
    either: Future[R] = Future._new(future._source)
    timer = plane.node.poller.call_later(deadline.left(), lambda: either._reject(deadline.error()))
    future._subscribe(lambda: either._resolve(None, lambda _: future.get()))
    either._subscribe(timer.cancel)
    return either
