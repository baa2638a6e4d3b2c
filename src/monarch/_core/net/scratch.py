"""Memory to read into, one piece per thread. Whoever reads has done with it before it reads again."""

from __future__ import annotations

import threading

from ..wire.frame import READ_SIZE

_threads = threading.local()


def scratch_memory() -> memoryview:
    """That of the current thread, `READ_SIZE` bytes."""
    memory: memoryview | None = getattr(_threads, "memory", None)
    if memory is None:
        memory = _threads.memory = memoryview(bytearray(READ_SIZE))
    return memory
