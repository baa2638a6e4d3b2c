"""Copying large buffers to shared memory by two threads, without the interpreter lock.

One core copies a few GB/s, which is what large messages take most of their time for; two copy
almost twice as much. Both take the next piece as soon as they have copied one, so where the other
cores are busy, the calling thread does it all and waits for no other.
"""

from __future__ import annotations

import _thread
import functools
import itertools
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_PARALLEL = 16 << 20  # bytes from which a second thread is worth its start
_PIECE = 1 << 20  # bytes copied at once


def copy(target: memoryview, data: memoryview) -> None:
    """Copy `data` to `target`, which is as long, writable, and of bytes as well.

    Waits for nothing but the copying itself: at its end, for the one piece that the second thread
    may have begun.
    """
    if len(data) < _PARALLEL or data.readonly or len(os.sched_getaffinity(0)) < 2:
        for start in range(0, len(data), _PIECE):
            target[start : start + _PIECE] = data[start : start + _PIECE]
        return
    shared = _SharedCopy(target, data)
    with suppress(RuntimeError):  # the system has no thread to give
        _thread.start_new_thread(shared.help, ())  # `threading.Thread` would wait until it runs
    shared.finish()


class _SharedCopy:
    """A copy that the calling thread and a helper make together."""

    def __init__(self, target: memoryview, data: memoryview) -> None:
        import ctypes

        to, source = (ctypes.c_char.from_buffer(memory) for memory in (target, data))
        # which stays where it is as long as these are here
        self._memory: tuple[Any, ...] = (to, source)
        self._to, self._source = ctypes.addressof(to), ctypes.addressof(source)
        self._size = len(data)
        self._turns = itertools.count(0, _PIECE)
        self._helped = threading.Semaphore(0)  # once for each piece of the helper

    def help(self) -> None:
        while self._copy_next():
            self._helped.release()

    def finish(self) -> None:
        """Copy what the helper does not, and wait for what it does."""
        mine = 0
        while self._copy_next():
            mine += 1
        for _ in range(-(-self._size // _PIECE) - mine):
            self._helped.acquire()
        self._memory = ()  # the helper may be late, and must not keep it

    def _copy_next(self) -> bool:
        """Copy the next piece; False if there is none."""
        start = next(self._turns)  # atomic
        if start >= self._size:
            return False
        _memcpy()(self._to + start, self._source + start, min(_PIECE, self._size - start))
        return True


@functools.cache
def _memcpy() -> Callable[..., Any]:
    import ctypes

    function = ctypes.CDLL(None).memcpy  # `ctypes.memmove` would hold the interpreter lock
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    function.restype = None
    return function
