"""Memory to read into, one piece per thread. Whoever reads has done with it before it reads again."""

from __future__ import annotations

import threading

from ..wire.frame import READ_SIZE


class _Scratch(threading.local):
    def __getattr__(self, name: str) -> memoryview:  # once in each thread that reads
        self.memory = memoryview(bytearray(READ_SIZE))
        return self.memory


scratch = _Scratch()
"""`scratch.memory` is that of the current thread, `READ_SIZE` bytes."""
