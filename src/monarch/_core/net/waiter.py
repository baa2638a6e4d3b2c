"""How a thread waits for a connection that it has borrowed, and is woken by other threads.

Handing a message from the poller's thread to the thread that waits for it costs two wake-ups and a fight for the
interpreter lock, some 20 µs. A thread with nothing to do but wait for one connection reads that connection itself.
"""

from __future__ import annotations

import math
import os
import select
import threading

_LONGEST_MS = 2**31 - 1  # what poll takes; whoever waits longer asks again


class Waiter:
    """An eventfd and a poll set, one pair per thread."""

    def __init__(self) -> None:
        self._event = -1
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._event, select.POLLIN)
        self._watched = -1
        self.thread_id = threading.get_ident()

    def wait(self, fd: int, timeout: float | None) -> bool:
        """Wait until `fd` is readable (True), until `wake`, or until `timeout` seconds have passed (False)."""
        if fd != self._watched:
            self._watch(fd)
        ready = False
        for found, _ in self._poll.poll(None if timeout is None else min(math.ceil(timeout * 1000), _LONGEST_MS)):
            if found == fd:
                ready = True
            else:
                self._clear()
        return ready

    def wake(self) -> None:
        """End a `wait` of this waiter's thread; free of charge on that thread itself, which does not wait."""
        if threading.get_ident() != self.thread_id:
            self.interrupt()

    def interrupt(self) -> None:
        """End the current `wait`, or the next; for signal handlers."""
        os.eventfd_write(self._event, 1)

    def _watch(self, fd: int) -> None:
        if self._watched >= 0:
            self._poll.unregister(self._watched)
        self._poll.register(fd, select.POLLIN)
        self._watched = fd

    def _clear(self) -> None:
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            pass

    def __del__(self) -> None:
        if self._event >= 0:
            os.close(self._event)


_threads = threading.local()


def thread_waiter() -> Waiter:
    """The waiter of the current thread."""
    waiter: Waiter | None = getattr(_threads, "waiter", None)
    if waiter is None:
        waiter = _threads.waiter = Waiter()
    return waiter
