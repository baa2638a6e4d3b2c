"""A seqlock for shared states.

Words beside a state count the writes that began, ended and failed; they tell whether all of it is
of one version.

A reader looks at them, reads, and looks again: if as many writes had ended as had begun, and none
began since, the content did not change meanwhile. It sends no message, and no writer waits for it.

Writers tell the owner's process when they begin and end, and it counts: for it knows who of them
has died. A write that failed, or died with its process, leaves the state torn until all of it is
written anew.

Writers do not see each other. Those of different elements may write at one time; those of the same
elements must take turns, or the state ends up with some values of each, and no count shows it.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

from ...actor import Future
from ..buffers.buffer import RDMABuffer
from ..grants.records import WriteStep
from ..memory import memory_of
from ..transfer import Operation
from .seqlock_owner import WORDS, WORDS_SIZE


class Seen(NamedTuple):
    """The words of some states at one time."""

    began: tuple[int, ...]
    ended: tuple[int, ...]
    failed: tuple[int, ...]
    mended: tuple[int, ...]

    @property
    def settled(self) -> bool:
        """True if no write was in progress."""
        return self.began == self.ended

    @property
    def torn(self) -> bool:
        """True if a write had failed, and not all been written anew since."""
        return self.failed != self.mended


class Versions:
    """The words of one shared state; pickles, as it is a handle."""

    def __init__(self) -> None:
        self.buffer = RDMABuffer(array("Q", bytes(WORDS_SIZE)))

    def begin(self) -> Future[int]:
        """A write begins; gives its token."""
        return self._tell(0)

    def end(self, token: int, *, whole: bool = False, failed: bool = False) -> Future[int]:
        """A write has ended.

        Args:
            token: What `begin` returned.
            whole: All of the state was written.
            failed: The state is now neither the old one nor the new one.
        """
        return self._tell(token, whole, failed)

    def _tell(self, token: int, whole: bool = False, failed: bool = False) -> Future[int]:
        step = WriteStep(self.buffer.claim, token, whole, failed)
        plane = self.buffer.plane
        return self.buffer.ask_owner(
            step, lambda: plane.count_write(plane.hub.address, step), "a write"
        )


class Look:
    """Reads the words of some states at one time, as often as you like."""

    def __init__(self, versions: list[Versions]) -> None:
        self._words = array("Q", bytes(WORDS_SIZE * len(versions)))
        memory = memory_of(self._words, "the versions")
        self.operations: list[Operation] = [
            v.buffer.operation(memory, index * WORDS_SIZE, 0, WORDS_SIZE, write=False)
            for index, v in enumerate(versions)
        ]

    def seen(self) -> Seen:
        """Return the words that were read last."""
        return Seen(*(tuple(self._words[word::WORDS]) for word in range(WORDS)))
