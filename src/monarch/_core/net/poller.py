"""One thread waits for everything: sockets, pidfds, timers, calls from other threads.

Handlers run on the poller's thread and must not block. What ends its wait: readiness, the next
timer, or `call_soon`.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..._lazy import counted_logger

READ = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP
WRITE = select.EPOLLOUT

_MOMENT = 0.00005  # seconds; the kernel makes that some 0.0001
_LONGEST = 3600.0  # seconds; epoll takes 24 days, a timer may be further away than that

Handler = Callable[[int], None]
logger = counted_logger("monarch.net")


class Timer:
    """A call that will happen once, unless cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class Poller:
    """An epoll loop with timers.

    `add`, `modify`, `remove`, `call_soon` and `call_later` may be used from any thread.
    """

    now = staticmethod(time.monotonic)  # the clock of the timers

    def __init__(self) -> None:
        self._epoll = select.epoll()
        # (fd, events): a method of its own would cost a call, twice per message
        self.modify = self._epoll.modify
        self._handlers: dict[int, Handler] = {}
        self._soon: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timer_ids = itertools.count()
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll.register(self._wake_read, select.EPOLLIN)
        self._handlers[self._wake_read] = self._woken
        self._stopped = False
        self._going_to_wait = False
        self.wakeups = 0
        """How often it has woken up."""
        self.thread_id: int | None = None

    def add(self, fd: int, handler: Handler, events: int = READ) -> None:
        """Call `handler(events)` whenever `fd` is ready (level-triggered)."""
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def remove(self, fd: int) -> None:
        """Forget `fd`; call before it is closed. Harmless when it is not there."""
        if self._handlers.pop(fd, None) is not None:
            try:  # not `suppress`, which takes three calls: this is on the path of each loan
                self._epoll.unregister(fd)
            except (OSError, ValueError):  # closed already, by us or with the poller
                pass

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the poller's thread.

        May be used in a finalizer, which runs anywhere: it takes no lock.
        """
        self._soon.append(callback)
        if threading.get_ident() != self.thread_id or self._going_to_wait:
            self._wake()

    def call_when_read(self, callback: Callable[[], None]) -> None:
        """Call `callback` on the poller's thread after all that others have sent by now.

        One turn lets a new connection in, the next one reads it.
        """
        next_turn = self._soon.append
        self.call_here_or_soon(lambda: next_turn(lambda: next_turn(lambda: next_turn(callback))))

    def call_here_or_soon(self, callback: Callable[[], None]) -> None:
        """Call `callback` now on the poller's thread or without one, otherwise soon there."""
        if self.thread_id in (None, threading.get_ident()):
            callback()
        else:
            self.call_soon(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        # the number orders timers of one moment by age: a `Timer` cannot be compared
        entry = (time.monotonic() + seconds, next(self._timer_ids), timer)
        if threading.get_ident() == self.thread_id:
            heapq.heappush(self._timers, entry)
        else:
            # the heap has no lock: it belongs to the poller's thread
            self.call_soon(lambda: heapq.heappush(self._timers, entry))
        return timer

    def give_way(self) -> None:
        """Wait a moment, on a thread that computes, while the poller's has something to do.

        Otherwise that gets the interpreter once in 5 ms, and loses it with each system call.
        """
        if not self._going_to_wait and threading.get_ident() != self.thread_id:
            time.sleep(_MOMENT)

    def stop(self) -> None:
        self._stopped = True
        self._wake()

    def run(self) -> None:
        """Serve until `stop`."""
        self.thread_id = threading.get_ident()
        poll, handlers, soon = self._epoll.poll, self._handlers, self._soon
        while not self._stopped:
            # a finalizer may queue something even between a look at `soon` and the wait
            self._going_to_wait = True
            ready = poll(self._timeout())
            self._going_to_wait = False
            self.wakeups += 1
            # a handler may remove another descriptor of this round, which is then not in the table
            for fd, events in ready:
                handler = handlers.get(fd)
                if handler is not None:
                    guarded(handler, events)
            # not those that they queue: these must not starve the connections
            for _ in range(len(soon)):
                guarded(soon.popleft())
            self._run_timers()
        self.thread_id = None

    def close(self) -> None:
        """Release the descriptors; after `run` has returned, or in a forked child."""
        self._epoll.close()
        pipe = self._wake_read, self._wake_write
        # a late call must not write to the next file that gets this descriptor number
        self._wake_read = self._wake_write = -1
        for fd in pipe:
            if fd >= 0:
                os.close(fd)
        self._handlers.clear()

    def _timeout(self) -> float | None:
        if self._soon:
            return 0
        timers = self._timers
        # cancelled ones stay in the heap until they are at its top: to take one out would be a
        # search
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
        return min(max(0.0, timers[0][0] - time.monotonic()), _LONGEST) if timers else None

    def _run_timers(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= time.monotonic():
            callback = heapq.heappop(timers)[2].callback
            if callback is not None:
                guarded(callback)

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"\0")
        except OSError:  # full: it will wake anyway; closed: no thread to wake
            pass

    def _woken(self, events: int) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass


def guarded(callback: Callable[..., object], *args: object) -> Any:
    """Call what one connection, or timer, or owner, has left to be called; a bug there must not end
    those of others.
    """
    try:
        return callback(*args)
    except Exception:
        with suppress(Exception):  # `logging` may be half imported
            logger.exception("internal error in a handler of the I/O loop; please report it")
