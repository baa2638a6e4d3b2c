"""The seam between transfers and the ways to carry them out."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..errors import TransferTimeoutError
from ..grants.records import Grant
from ..memory import Memory

if TYPE_CHECKING:
    from ..grants.leases import Lease
    from ..plane import Plane


class Deadline:
    """The end of a time limit.

    Args:
        timeout: Seconds from now.
    """

    __slots__ = ("_end", "timeout")

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._end = time.monotonic() + timeout

    def left(self) -> float:
        """Seconds, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raises TransferTimeoutError if it is over."""
        if time.monotonic() >= self._end:
            raise self.error()

    def error(self) -> TransferTimeoutError:
        return TransferTimeoutError(f"the transfer was not done within {self.timeout:g}s")


class Piece(NamedTuple):
    """Bytes to be moved: from `offset` of a buffer to `start` of local memory, or the other way.

    In one row, or in `rows` of the same size; see `transfer.Operation`.
    """

    lease: Lease
    grant: Grant
    offset: int
    memory: Memory
    start: int
    nbytes: int
    rows: int = 1
    offset_step: int = 0
    start_step: int = 0

    @property
    def row(self) -> int:
        """Bytes of each row."""
        return self.nbytes // self.rows

    @property
    def end(self) -> int:
        """The end of its last byte in the buffer."""
        return self.offset + (self.rows - 1) * self.offset_step + self.row

    def part(self, skip: int, nbytes: int) -> Piece:
        """Return some bytes of a piece of one row."""
        return self._replace(offset=self.offset + skip, start=self.start + skip, nbytes=nbytes)

    def some_rows(self, first: int, count: int) -> Piece:
        """Return `count` rows from `first` on, or as many as there are."""
        count = min(count, self.rows - first)
        return self._replace(
            offset=self.offset + first * self.offset_step,
            start=self.start + first * self.start_step,
            nbytes=count * self.row,
            rows=count,
        )


class BufferLink(ABC):
    """A path to one owner, or to one buffer, that is open."""

    path: str
    moves_devices = False
    """Whether the local memory may be a GPU's; otherwise such bytes are staged through memory of
    the host.
    """
    inline = False
    """Whether a small transfer costs so little that the caller's own thread may do it."""

    @abstractmethod
    def move(
        self, pieces: Sequence[Piece], write: bool, deadline: Deadline, moved: Callable[[int], None]
    ) -> None:
        """Move all pieces; returns when they have arrived.

        Args:
            pieces: What to move where.
            write: To the buffers; otherwise from them.
            deadline: When to give up.
            moved: Called with the number of bytes of each part that has arrived, on any thread.

        Raises:
            RDMAError: It can't be done.
            TransferTimeoutError: Not in time. Nothing is written to local memory any more when this
                is raised.
            UnavailableError: This path is closed after all; the pieces may be moved again, in
                another way.
        """


class Path(ABC):
    """One way to reach buffers."""

    name: str
    way: str
    """What it does, in a few words."""

    @abstractmethod
    def refusal(self, plane: Plane, lease: Lease, grant: Grant) -> str | None:
        """Why it can't lead there, as far as that is known without trying; None if it may."""

    @abstractmethod
    def connect(self, plane: Plane, lease: Lease, grant: Grant, deadline: Deadline) -> BufferLink:
        """Open it.

        Raises:
            UnavailableError: It does not lead there.
            RDMAError: The buffer is gone, or the time is over.
        """

    def key(self, lease: Lease, grant: Grant) -> tuple[object, ...]:
        """Return the key by which transfers share a link."""
        return (self.name, lease.info.owner, grant.pid)
