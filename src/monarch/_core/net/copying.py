"""Copying large buffers into shared memory: by two threads, without the interpreter lock, where there is a core for each.

One core copies a few GB/s, which is what large messages take most of their time for; two copy almost twice as much.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

_PARALLEL = 32 << 20  # bytes from which a second thread is worth its start, also on a busy machine
_CHUNK = 1 << 20  # bytes copied at once with the interpreter lock held
_PAGE = 4096


def copy(target: memoryview, data: memoryview) -> None:
    """Copy `data` to `target`, which is as long, writable, and of bytes as well. Waits for nothing but the copying itself."""
    if len(data) < _PARALLEL or data.readonly or len(os.sched_getaffinity(0)) < 2:
        for start in range(0, len(data), _CHUNK):
            target[start : start + _CHUNK] = data[start : start + _CHUNK]
        return
    half = len(data) // 2 // _PAGE * _PAGE
    helper = threading.Thread(
        target=_copy_unlocked, args=(target[half:], data[half:]), name="monarch-copy", daemon=True
    )
    try:
        helper.start()
    except RuntimeError:  # the system has no thread to give
        _copy_unlocked(target, data)
        return
    _copy_unlocked(target[:half], data[:half])
    helper.join()


def _copy_unlocked(target: memoryview, data: memoryview) -> None:
    to, source = (ctypes.c_char.from_buffer(memory) for memory in (target, data))  # which keep the memory where it is
    _memcpy()(ctypes.addressof(to), ctypes.addressof(source), len(data))


@functools.cache
def _memcpy() -> Callable[..., Any]:
    function = ctypes.CDLL(None).memcpy  # `ctypes.memmove` would hold the interpreter lock
    function.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    function.restype = None
    return function
