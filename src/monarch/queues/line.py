"""Waiting in a line of an actor.

An item that a consumer does not get, or no longer wants, comes back.

A consumer waits in turns of a few seconds: a consumer that has died, or waits no longer, leaves the
line with its turn. What it was given meanwhile comes back after its lease, or at once.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty
from typing import Any, Generic, TypeAlias, TypeVar

from .._core.plane import PendingOperation, Promise, when_done
from ..actor import Future, ProcMesh, SupervisionError
from ..errors import BackpressureError

E = TypeVar("E")
V = TypeVar("V")
Given: TypeAlias = "tuple[int, V]"
"""A ticket by which the consumer reports the outcome, and the value given to it."""

_TURN = 2.0  # seconds


async def done(
    answer: asyncio.Future[Any], line: deque[E], entry: E, timeout: float | None
) -> bool:
    """Wait for an answer, and return whether there was one in time.

    A waiter that is late, or was cancelled, leaves the line.

    Args:
        answer: What ends the wait.
        line: Where `entry` stands.
        entry: The waiter's place in the line.
        timeout: In seconds.
    """
    try:
        await asyncio.wait({answer}, timeout=timeout)
    finally:
        if not answer.done():
            line.remove(entry)
    return answer.done()


class Leases(Generic[V]):
    """Items given to consumers, until they are known to have arrived.

    Args:
        seconds: In which that must be known.
        take_back: Called with each value that has not arrived.
    """

    def __init__(self, seconds: float, take_back: Callable[[V], None]) -> None:
        self._seconds = seconds
        self._take_back = take_back
        self._given: dict[int, tuple[V, asyncio.TimerHandle]] = {}
        self._tickets = itertools.count()

    def __len__(self) -> int:
        return len(self._given)

    def give(self, value: V) -> int:
        """The ticket for it."""
        ticket = next(self._tickets)
        timer = asyncio.get_running_loop().call_later(self._seconds, self.settle, ticket, False)
        self._given[ticket] = value, timer
        return ticket

    def settle(self, ticket: int, kept: bool) -> None:
        """Settle a lease: the item has arrived, or comes back."""
        value, timer = self._given.pop(ticket, (None, None))
        if timer is None:  # that is known already
            return
        timer.cancel()
        if not kept:
            # there is a timer, so there is a value
            self._take_back(value)  # type: ignore[arg-type]


class Consumer(PendingOperation):
    """Asks an actor, turn by turn, for something that a future is to have.

    It stops when the future's wait is given up.

    Args:
        name: What it waits for.
        ask: Asks for so many seconds. The answer is a `Given`, or the class of an error: `Empty`
            where the turn was too short.
        settle: Tells the actor the outcome of that ticket.
        unseal: Converts the given value to the future's result, in the thread of the first reader.
        timeout: Seconds in which there must be an answer; None for any time.
    """

    def __init__(
        self,
        name: str,
        ask: Callable[[float], Future[Any]],
        settle: Callable[[int, bool], object],
        unseal: Callable[[Any], Any],
        timeout: float | None,
    ) -> None:
        self.name = name
        self._ask = ask
        self._settle = settle
        self._unseal = unseal
        self._end = None if timeout is None else time.monotonic() + timeout
        self._future: Callable[[], Future[Any] | None] = lambda: None
        self._lock = threading.Lock()
        self._waits = 0
        self._was_given_up = False
        self._asks = True

    def begin(self) -> Future[Any]:
        """The future. Raises what `ask` raises."""
        promise: Promise[Any] = Promise(self)
        self._future = weakref.ref(promise.future)  # who drops it wants nothing more
        self._turn()
        return promise.future

    def observed(self, future: object, loop: object) -> None:
        with self._lock:
            self._waits += 1
            asks, self._asks = self._asks, True
        if not asks:
            self._go_on()

    def abandoned(self, future: object) -> None:
        with self._lock:
            self._waits -= 1
            self._was_given_up = True

    def _turn(self) -> None:
        left = _TURN if self._end is None else min(_TURN, max(0.0, self._end - time.monotonic()))
        when_done(self._ask(left), self._answered)

    def _go_on(self) -> None:
        try:
            self._turn()
        except Exception as error:
            if (future := self._future()) is not None:
                Promise.of(future).reject(error)

    def _answered(self, asked: Future[Any]) -> None:
        error = asked.exception()
        answer: Any = asked.get() if error is None else None
        future = self._future()
        with self._lock:
            is_wanted = self._asks = future is not None and (
                self._waits > 0 or not self._was_given_up
            )
        if isinstance(answer, tuple):
            if is_wanted and future is not None:
                Promise.of(future).resolve(answer[1], self._unseal)
            self._tell(answer[0], is_wanted)
        elif answer is Empty and (self._end is None or time.monotonic() < self._end):
            del future  # only its readers have it meanwhile
            if is_wanted:
                self._go_on()
        elif future is not None:
            Promise.of(future).reject(answer() if error is None else error)

    def _tell(self, ticket: int, kept: bool) -> None:
        # it has ended; or finds out itself, when the lease is over
        with suppress(SupervisionError, BackpressureError):
            self._settle(ticket, kept)


def one_proc(procs: ProcMesh, what: str) -> ProcMesh:
    """Check that a mesh has one process, and return it.

    Args:
        procs: The mesh.
        what: What lives there, for errors.

    Raises:
        TypeError: It is no proc mesh.
        ValueError: It has several processes.
    """
    if not isinstance(procs, ProcMesh):
        raise TypeError(f"{what} lives in a mesh of one process, got {procs!r}")
    if procs.extent.nelements != 1:
        raise ValueError(
            f"{what} lives in one process, {procs!r} has {procs.extent.nelements}: slice it"
        )
    return procs
