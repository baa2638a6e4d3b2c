"""The owner's count of the writes of its shared states."""

from __future__ import annotations

import ctypes
import threading
from typing import NamedTuple

from ..._core.plane import ProcAddress
from ..grants.records import WriteStep
from ..memory import Memory

WORDS = 4
"""Words of 64 bits, which others read: how many writes began, ended, failed, and how many of those
that failed were made up for.
"""
WORDS_SIZE = 8 * WORDS
_BEGAN, _ENDED, _FAILED, _MENDED = range(WORDS)


class _Open(NamedTuple):
    """A write in progress: the writer, and how many writes had failed when it began."""

    writer: ProcAddress
    failed: int


class Writes:
    """The counts of writes to one state, in its owner.

    Args:
        memory: The words, which others read.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory  # which holds them
        self._words = (ctypes.c_uint64 * WORDS).from_address(memory.address)
        self._lock = threading.Lock()
        self._open: dict[int, _Open] = {}

    def step(self, writer: ProcAddress, step: WriteStep) -> int:
        """A write begins or ends; its token.

        One that is not open has ended before: its process was taken for dead.
        """
        with self._lock:
            if not step.token:
                self._words[_BEGAN] += 1
                token = int(self._words[_BEGAN])
                self._open[token] = _Open(writer, int(self._words[_FAILED]))
                return token
            ended = self._open.pop(step.token, None)
            if ended is not None:
                if step.whole:
                    # only failures from before this write began are mended: a later one may have
                    # torn what this wrote
                    self._words[_MENDED] = max(int(self._words[_MENDED]), ended.failed)
                self._end(step.failed)
            return step.token

    def writer_lost(self, writer: ProcAddress) -> None:
        """A process is gone: what it was writing is torn."""
        with self._lock:
            for token in [token for token, write in self._open.items() if write.writer == writer]:
                del self._open[token]
                self._end(failed=True)

    def _end(self, failed: bool) -> None:
        self._words[_FAILED] += failed
        self._words[_ENDED] += 1  # last: a reader that sees its end must also see how it ended
