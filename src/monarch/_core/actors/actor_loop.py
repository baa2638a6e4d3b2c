"""The event loop of an async actor.

While it has nothing to run, its thread reads the connection it waits for.

As in `net.waiter`, this saves the hand-over from the poller's thread, which for an event loop would
cost a write to its self-pipe, a wake-up and a fight for the interpreter lock.
"""

from __future__ import annotations

import asyncio
import math
import select
import selectors

from ..net.loan import Lendable

# What the timers of `asyncio.sleep`, and of `asyncio.wait` and the like, call: it only wakes the
# task that set them.
_WAKES_ITS_MAKER = ("_set_result_unless_cancelled", "_release_waiter")


class ReadingSelector(selectors.EpollSelector):
    """An epoll selector that, before it would block, borrows a connection and waits for that, too.

    Attributes:
        connection: Where the next message, or the answer that is awaited, is expected; a hint.
    """

    def __init__(self) -> None:
        super().__init__()
        self.connection: Lendable | None = None
        self._poll = select.poll()
        # an epoll is readable when one of its descriptors is: one poll waits for the loop and the
        # connection
        self._poll.register(self.fileno(), select.POLLIN)
        self._watched = -1

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        connection = self.connection
        if connection is not None and (timeout is None or timeout > 0) and connection.borrow():
            try:
                self._wait(connection, timeout)
            except BaseException as error:
                connection.give_back(error)
                raise
            connection.give_back()
            # the wait is over: what the loop itself has to do is only looked at
            timeout = 0
        return super().select(timeout)

    def _wait(self, connection: Lendable, timeout: float | None) -> None:
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

    def expect(self, connection: Lendable | None) -> None:
        """Tell where what the loop waits for will come from."""
        self.reading.connection = connection


def limited_tasks(loop: asyncio.AbstractEventLoop) -> set[object] | None:
    """The tasks that a timer may cancel, as `asyncio.timeout` does; None if it may be any of them.

    On any thread.
    """
    limited = set()
    # no public way
    timers: list[asyncio.TimerHandle] = loop._scheduled.copy()  # type: ignore[attr-defined]
    for timer in timers:
        callback = timer._callback  # type: ignore[attr-defined]  # nor to tell what they are for
        if timer.cancelled() or getattr(callback, "__name__", "") in _WAKES_ITS_MAKER:
            continue
        task = getattr(getattr(callback, "__self__", None), "_task", None)
        if task is None:
            return None
        limited.add(task)
    return limited
