"""A pool of threads that copy memory, for the plane of `rdma`.

Threads start when there is work and end after half a second without any. A job may wait for others
only by `spread`, where the waiting thread takes part in the work: so a limited number of threads
cannot block each other.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

_LIMIT = 16  # threads; more transfers than that at one time take turns
_LINGER = 0.5  # seconds
_SPREAD = 4  # threads that share one transfer: two saturate the memory of small machines


class Workers:
    """The threads of a plane.

    Args:
        name: Of the threads.
        thread: Makes one.
    """

    def __init__(self, name: str, thread: Callable[..., threading.Thread]) -> None:
        self._name, self._thread = name, thread
        self._jobs: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._threads = self._idle = 0
        self.share = max(1, min(_SPREAD, len(os.sched_getaffinity(0))))

    def submit(self, job: Callable[[], None]) -> None:
        """Have `job` run soon, on a thread; it must not raise."""
        with self._changed:
            self._jobs.append(job)
            if self._idle:
                self._changed.notify()
            if self._idle >= len(self._jobs) or self._threads >= _LIMIT:
                return
            self._threads += 1
        try:
            self._thread(target=self._run, name=self._name).start()
        except RuntimeError:  # the system has no thread to give
            with self._changed:
                self._threads -= 1
                if self._threads:
                    return  # one of those will come to it
            self._work_off()

    def spread(self, parts: Sequence[T], work: Callable[[T], None]) -> None:
        """Do ``work(part)`` for all parts, on a few threads, this one among them.

        Returns when all is done.

        After an error, parts that were not begun are left out, and the error is raised.
        """
        if len(parts) == 1:
            work(parts[0])
            return
        shares = _Shares(parts, work)
        for _ in range(min(self.share, len(parts)) - 1):
            self.submit(shares.take_part)
        shares.take_part()
        shares.wait()

    def _run(self) -> None:
        while True:
            self._work_off()
            with self._changed:
                if self._jobs:
                    continue
                self._idle += 1
                self._changed.wait(_LINGER)
                self._idle -= 1
                if not self._jobs:
                    self._threads -= 1
                    return

    def _work_off(self) -> None:
        while True:
            try:
                job = self._jobs.popleft()
            except IndexError:
                return
            job()
            del job  # it may be the last to hold a buffer


class _Shares:
    """Parts of one job. Only parts that a thread has begun are waited for."""

    def __init__(self, parts: Sequence[T], work: Callable[[T], None]) -> None:
        self._parts = deque(parts)
        self._work = work
        self._running = 0
        self._changed = threading.Condition()
        self._error: BaseException | None = None

    def take_part(self) -> None:
        while True:
            with self._changed:
                if not self._parts:
                    return
                part = self._parts.popleft()
                self._running += 1
            try:
                self._work(part)
            except BaseException as error:
                with self._changed:
                    self._error = self._error or error
                    self._parts.clear()
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._running)
        if self._error is not None:
            raise self._error
