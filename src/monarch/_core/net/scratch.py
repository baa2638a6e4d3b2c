"""Memory to read into, one piece per thread.

A reader is done with the content before its thread reads again.
"""

from __future__ import annotations

import mmap
import threading

from ..wire.frame import READ_SIZE


class _Scratch(threading.local):
    def __getattr__(self, name: str) -> memoryview:  # once in each thread that reads
        # pages that nothing was read into cost nothing; a bytearray would have written zeros to all
        # of them
        self.memory = memoryview(mmap.mmap(-1, READ_SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        return self.memory


scratch = _Scratch()
"""`scratch.memory` is that of the current thread, `READ_SIZE` bytes."""
