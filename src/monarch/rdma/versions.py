"""Whether a shared state is all of one version: two words beside it, which count the writes that began and that ended.

A writer counts up `began`, writes, and counts up `ended`. A reader looks at both, reads, and looks again: if as many had ended
as had begun, and none began since, nobody wrote meanwhile. It need not be told, and nobody waits for it.

A write that failed, or whose process died, has not ended: readers hear that the state is not whole. A later write of all of it
sets that right: it ends every write that began before it.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from .._core.runtime.future import Future
from .buffer import RDMABuffer
from .memory import memory_of
from .steps import Steps
from .transfer import Operation

_BEGAN, _ENDED = 0, 8  # offsets of the words
_SIZE = 16


class Seen(NamedTuple):
    """What the words of some states said."""

    began: tuple[int, ...]
    ended: tuple[int, ...]

    @property
    def settled(self) -> bool:
        """Whether no write was in progress."""
        return self.began == self.ended


class Versions:
    """The words of one shared state; pickles, as it is a handle."""

    def __init__(self) -> None:
        self.buffer = RDMABuffer(array("Q", (0, 0)))

    def begin(self) -> Future[int]:
        """Count a write that begins; gives how many had begun before."""
        return self.buffer.fetch_add(1, offset=_BEGAN)

    def end(self, before: int, whole: bool) -> Steps[None]:
        """Count a write that has ended.

        Args:
            before: What `begin` gave.
            whole: Whether all of the state was written.
        """
        if not whole:
            yield self.buffer.fetch_add(1, offset=_ENDED)
            return
        ended = yield self.buffer.fetch_add(0, offset=_ENDED)
        yield self.buffer.compare_and_swap(ended, before + 1, offset=_ENDED)


class Look:
    """Reads the words of some states at one time, as often as you like."""

    def __init__(self, versions: list[Versions]) -> None:
        self._words = array("Q", bytes(_SIZE * len(versions)))
        memory = memory_of(self._words, "the versions")
        self.operations: list[Operation] = [
            v.buffer.operation(memory, index * _SIZE, 0, _SIZE, write=False) for index, v in enumerate(versions)
        ]

    def seen(self) -> Seen:
        """What was read last."""
        return Seen(tuple(self._words[::2]), tuple(self._words[1::2]))
