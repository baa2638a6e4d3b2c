"""The event loop of an async actor: while it has nothing to run, its thread reads the connection it waits for.

As in `net.waiter`, this saves the hand-over from the poller's thread, which for an event loop would cost a write to its
self-pipe, a wake-up and a fight for the interpreter lock.
"""

from __future__ import annotations

import asyncio
import math
import select
import selectors

from ..net.connection import Connection


class ReadingSelector(selectors.EpollSelector):
    """An epoll selector that, before it would block, borrows a connection and waits for that, too.

    Attributes:
        connection: Where the next message, or the answer that is awaited, is expected; a hint.
    """

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self._poll = select.poll()
        self._poll.register(self.fileno(), select.POLLIN)
        self._watched = -1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        connection = self.connection
        if connection is not None and (timeout is None or timeout > 0):
            with connection.borrowed() as mine:
                if mine:
                    self._wait(connection, timeout)
                    timeout = 0
        return super().select(timeout)

    def _wait(self, connection: Connection, timeout: float | None) -> None:
        """Wait until the loop has something to do, or something was read."""
        if connection.fd != self._watched:
            if self._watched >= 0:
                self._poll.unregister(self._watched)
            self._poll.register(connection.fd, select.POLLIN)
            self._watched = connection.fd
        for fd, _ in self._poll.poll(None if timeout is None else math.ceil(timeout * 1000)):
            if fd == self._watched:
                connection.receive()


class ActorLoop(asyncio.SelectorEventLoop):
    """An asyncio loop over a `ReadingSelector`."""

    def __init__(self) -> None:
        self.reading = ReadingSelector()
        super().__init__(self.reading)

    def may_cancel(self, task: object) -> bool:
        """Whether a timer is set that may cancel `task`, as `asyncio.timeout` does; on any thread."""
        timers: list[asyncio.TimerHandle] = self._scheduled.copy()  # type: ignore[attr-defined]  # asyncio's own
        return any(_may_cancel(timer, task) for timer in timers if not timer.cancelled())

    def expect(self, connection: Connection | None) -> None:
        """Tell where what the loop waits for will come from."""
        self.reading.connection = connection


# what the timers of `asyncio.sleep`, and of `asyncio.wait` and the like, call: it wakes the task that made them
_WAKES_A_SLEEPER = (asyncio.futures._set_result_unless_cancelled, asyncio.tasks._release_waiter)  # type: ignore[attr-defined]


def _may_cancel(timer: asyncio.TimerHandle, task: object) -> bool:
    callback = timer._callback  # type: ignore[attr-defined]  # no other way to tell timers apart
    limited = getattr(getattr(callback, "__self__", None), "_task", None)  # what an `asyncio.Timeout` guards
    return callback not in _WAKES_A_SLEEPER if limited is None else limited is task
