"""Path ``copy``: owner and caller are one process, so it is a plain copy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..grants.control_rpc import refused
from ..grants.records import Grant
from ..grants.registry import RefusedError
from ..memory import DeviceMemory, HostMemory, Memory, as_tensor, synchronize
from .chunking import shares
from .path import BufferLink, Deadline, Path, Piece

if TYPE_CHECKING:
    from ..grants.leases import Lease
    from ..plane import Plane


class CopyPath(Path):
    """The path within one process."""

    name = "copy"
    way = "a copy within the process"

    def refusal(self, plane: Plane, lease: Lease, grant: Grant) -> str | None:
        return None if lease.info.owner == plane.hub.address else "the owner is another process"

    def connect(self, plane: Plane, lease: Lease, grant: Grant, deadline: Deadline) -> BufferLink:
        return CopyLink(plane)


class CopyLink(BufferLink):
    """A link that copies memory of this process."""

    path = "copy"
    moves_devices = True
    inline = True

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def move(
        self, pieces: Sequence[Piece], write: bool, deadline: Deadline, moved: Callable[[int], None]
    ) -> None:
        def copy(batch: list[Piece]) -> None:
            deadline.check()
            for piece in batch:
                remote = self._own(piece, write)
                if write:
                    copy_memory(remote, piece.offset, piece.memory, piece.start, piece.nbytes)
                else:
                    copy_memory(piece.memory, piece.start, remote, piece.offset, piece.nbytes)
                moved(piece.nbytes)

        workers = self._plane.workers
        workers.spread(shares(pieces, workers.share), copy)

    def _own(self, piece: Piece, write: bool) -> Memory:
        """The memory of a buffer of this very process.

        Raises:
            RDMAError: It is not there, or not in that range.
        """
        try:
            return self._plane.registry.memory(piece.lease.claim, piece.offset, piece.nbytes, write)
        except RefusedError as error:
            raise refused(error.refusal) from None


def copy_memory(to: Memory, to_start: int, source: Memory, start: int, nbytes: int) -> None:
    """Copy within this process, between any two kinds of memory.

    The interpreter lock is free meanwhile.
    """
    if isinstance(to, HostMemory) and isinstance(source, HostMemory):
        ctypes.memmove(to.address + to_start, source.address + start, nbytes)
        return
    target, origin = as_tensor(to, to_start, nbytes), as_tensor(source, start, nbytes)
    target.copy_(origin)
    synchronize(target if isinstance(to, DeviceMemory) else origin)
