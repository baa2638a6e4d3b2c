"""Runs the callbacks that programs attach to futures."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .future import Future


class CallbackThread:
    """Runs user callbacks, so that one which blocks cannot stop the I/O thread. Started on first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], object]] | None = None

    def submit(self, context: Context, callback: Callable[[Future[Any]], object], future: Future[Any]) -> None:
        with self._lock:
            if self._jobs is None:
                self._jobs = SimpleQueue()
                threading.Thread(target=self._run, args=(self._jobs,), name="monarch-callbacks", daemon=True).start()
        self._jobs.put(functools.partial(context.run, callback, future))

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
