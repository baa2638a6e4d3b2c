"""Runs the callbacks that programs attach to futures, and what else must not happen where it comes up."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from .future import Future

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


class UserCallback:
    """A callback that a program attached: runs on its event loop, or on the callback thread."""

    __slots__ = ("_context", "_future", "_loop", "callback")

    def __init__(
        self, callback: Callable[[Future[Any]], object], future: Future[Any], loop: asyncio.AbstractEventLoop | None
    ) -> None:
        self.callback = callback
        self._future = future
        self._loop = loop
        self._context = copy_context()

    def __call__(self) -> None:
        self._future._noticed()
        if self._loop is None:
            callback_thread.jobs().put(functools.partial(self._context.run, self.callback, self._future))
            return
        with suppress(RuntimeError):  # that loop was closed: nobody is there to be called
            self._loop.call_soon_threadsafe(self.callback, self._future, context=self._context)
