"""How a thread waits for a connection that it has borrowed, and is woken by other threads.

Handing a message from the poller's thread to the thread that waits for it costs two wake-ups and a
fight for the interpreter lock, some 20 µs. A thread with nothing to do but wait for one connection
reads that connection itself.
"""

from __future__ import annotations

import math
import os
import select
import threading
from collections.abc import Callable

_LONGEST_MS = 2**31 - 1  # what poll takes; for a longer wait it is called again


class Waiter:
    """An eventfd and a poll set, for one thread at a time."""

    _event = -1  # if a signal handler raised inside `__init__`

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._event, select.POLLIN)
        self._watched = -1
        self.thread_id = threading.get_ident()

    def wait(self, fd: int, timeout: float | None) -> bool:
        """Wait until `fd` is readable (True), until `wake`, or for `timeout` seconds (False)."""
        if fd != self._watched:
            self._watch(fd)
        ready = False
        # rounded up: poll counts milliseconds, and a wait that ends too early would spin until its
        # deadline
        for found, _ in self._poll.poll(
            None if timeout is None else min(math.ceil(timeout * 1000), _LONGEST_MS)
        ):
            if found == fd:
                ready = True
            else:
                self._clear()
        return ready

    def wake(self) -> None:
        """End a `wait` of this waiter's thread; free on that thread itself, which does not wait."""
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


_spare: list[Waiter] = []
"""Waiters that are not in use.

As only one thread waits for a connection, there are about as many as connections, however many
threads wait: a process may have more actors than it may have files.
"""

# an eventfd is shared with the parent after a fork: a wake-up for one would be taken by the other
os.register_at_fork(after_in_child=_spare.clear)


def take_waiter() -> Waiter:
    """A waiter for the current thread, until it is put back.

    A wake-up meant for the thread that had it before may end a wait: look again.

    Raises:
        OSError: There is none, and no descriptor is left for another.
    """
    try:
        waiter = _spare.pop()
    except IndexError:
        return Waiter()
    waiter.thread_id = threading.get_ident()
    return waiter


put_back: Callable[[Waiter], None] = _spare.append
"""The current thread does not wait any more."""
