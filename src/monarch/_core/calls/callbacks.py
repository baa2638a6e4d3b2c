"""The thread that runs the callbacks which programs attach to futures, and what else must not happen where it comes up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

CALLBACK_THREAD = "monarch-callbacks"


class CallbackThread:
    """Runs user callbacks, so that one which blocks cannot stop the I/O thread. Started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], object]] | None = None

    def jobs(self) -> SimpleQueue[Callable[[], object]]:
        """What is put in here is called, in order. Putting is safe everywhere, finalizers included.

        Raises:
            RuntimeError: The system has no thread to give.
        """
        if self._jobs is not None:
            return self._jobs
        with self._lock:
            if self._jobs is None:
                jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
                threading.Thread(target=self._run, args=(jobs,), name=CALLBACK_THREAD, daemon=True).start()
                self._jobs = jobs
            return self._jobs

    def forget(self) -> None:
        """In a forked child, which has not got the thread."""
        self._lock = threading.Lock()
        self._jobs = None

    @staticmethod
    def _run(jobs: SimpleQueue[Callable[[], object]]) -> None:
        while True:
            try:
                jobs.get()()
            except BaseException as error:  # sys.exit in one callback must not end those of others
                arguments = (type(error), error, error.__traceback__, threading.current_thread())
                with suppress(BaseException):
                    threading.excepthook(threading.ExceptHookArgs(arguments))


callback_thread = CallbackThread()
os.register_at_fork(after_in_child=callback_thread.forget)
