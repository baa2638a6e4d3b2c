"""A time limit for a block of synchronous code, on whichever thread runs it.

    with ThreadTimeout(5.0):
        parse(document)  # ThreadTimeoutError after five seconds

The error is raised in the block between two steps of the interpreter. A block that waits outside of
it, in a lock, a `sleep` or a C library, hears of it when that wait returns; for calls of actors,
`Future.get(timeout=...)` is exact.
"""

from __future__ import annotations

import ctypes
import threading

__all__ = ["ThreadTimeout", "ThreadTimeoutError"]

_limited: set[int] = set()  # threads that are in such a block
_set_error = ctypes.pythonapi.PyThreadState_SetAsyncExc


class ThreadTimeoutError(BaseException):
    """A block has exceeded its time limit.

    Not an `Exception`, so that no broad handler in the block keeps it.
    """


class ThreadTimeout:
    """Bound the time that a block of code takes.

    A context manager, to be entered once; blocks do not nest on a thread.

    Once the time is over, the block ends with `ThreadTimeoutError` even if the code in it has
    caught that.

    Args:
        seconds: How long the block may take.

    Raises:
        TypeError: `seconds` is no number.
        ValueError: `seconds` is not positive.
    """

    def __init__(self, seconds: float) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
            raise TypeError(f"seconds must be a number, got {seconds!r}")
        if not seconds > 0:
            raise ValueError(f"seconds must be positive, got {seconds!r}")
        self._thread = 0
        # held where it is decided whether the block ended first, or its time
        self._lock = threading.Lock()
        self._ended = False
        self._fired = False
        self._timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), self._fire)
        self._timer.daemon = True

    def __enter__(self) -> ThreadTimeout:
        if self._thread:
            raise RuntimeError("a ThreadTimeout is entered once: make a new one for each block")
        thread = threading.get_ident()
        if thread in _limited:
            raise RuntimeError(
                "blocks with a ThreadTimeout do not nest: this thread is in one already"
            )
        self._thread = thread
        _limited.add(thread)
        self._timer.start()
        return self

    def _fire(self) -> None:
        with self._lock:
            if not self._ended:
                self._fired = True
                # here, as the error may be raised at the first step of `__exit__`
                _limited.discard(self._thread)
                _set_error(ctypes.c_ulong(self._thread), ctypes.py_object(ThreadTimeoutError))

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        with self._lock:
            self._ended = True
        if not self._fired:
            self._timer.cancel()
            _limited.discard(self._thread)
            return
        self._await_error()
        if kind is None:
            raise ThreadTimeoutError

    def _await_error(self) -> None:
        """Have the error raised here, as it may not have been raised yet.

        To withdraw it would leave CPython's flag for such errors set, for good: each thread looks
        for one at each step, and one that is traced gets no further than the entry of a function
        (3.11).
        """
        try:
            _set_error(ctypes.c_ulong(self._thread), ctypes.py_object(ThreadTimeoutError))
            while True:
                pass
        except ThreadTimeoutError:
            pass
