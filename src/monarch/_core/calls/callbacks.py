"""The threads that run the callbacks of futures.

Callbacks of programs, and continuations of the engine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue


class CallbackThread:
    """A thread for calls that may block where they come up.

    On the I/O thread, in a finalizer. Started on first use.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], object]] | None = None

    def jobs(self) -> SimpleQueue[Callable[[], object]]:
        """Return the queue that runs its jobs in order.

        Putting is safe everywhere, finalizers included.

        Raises:
            RuntimeError: The system has no thread to give.
        """
        if self._jobs is not None:
            return self._jobs
        with self._lock:
            if self._jobs is None:
                jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
                threading.Thread(
                    target=self._run, args=(jobs,), name=self.name, daemon=True
                ).start()
                # only once the thread runs: without one, jobs put by others would never be called
                self._jobs = jobs
            return self._jobs

    def forget(self) -> None:
        """Forget the thread in a forked child, which does not have it."""
        self._lock = threading.Lock()
        self._jobs = None

    @staticmethod
    def _run(jobs: SimpleQueue[Callable[[], object]]) -> None:
        while True:
            called(jobs.get())


def called(job: Callable[[], object]) -> None:
    """Call, and report what it raises: `sys.exit` in one callback must not end those of others."""
    try:
        job()
    except BaseException as error:
        arguments = (type(error), error, error.__traceback__, threading.current_thread())
        with suppress(BaseException):
            threading.excepthook(threading.ExceptHookArgs(arguments))


callback_thread = CallbackThread("monarch-callbacks")
continuation_thread = CallbackThread("monarch-continuations")
"""What the engine goes on with has a thread of its own: a callback of a program may wait for it."""

for _thread in (callback_thread, continuation_thread):
    os.register_at_fork(after_in_child=_thread.forget)
