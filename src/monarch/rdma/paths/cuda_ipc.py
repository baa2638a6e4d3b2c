"""Path ``cuda``: two processes of one machine open the same memory of a GPU.

It uses CUDA IPC, through torch.

Device to device without touching the host; the other side may also be memory of the host.

torch counts who has memory open: the owner's stays until as many have closed it as it was handed
to. So the owner hands it out only to a process that is just about to open it, and the other side
closes it with its last handle, or when the owner recalls it. A handle that comes to a process which
has given up by then is opened and closed at once.

What ends a wait: the owner's answer, the end of its process, or the deadline of the transfer.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..._core.plane import subscribe
from ...actor import Future
from ..errors import UnavailableError
from ..grants.control_rpc import ask
from ..grants.records import CudaRequest, Grant, Refusal, here
from ..memory import DeviceMemory, open_shared
from .chunking import parts
from .copy import copy_memory
from .path import BufferLink, Deadline, Path, Piece
from .process_vm import ProcessWatch

if TYPE_CHECKING:
    from ..grants.leases import Lease
    from ..plane import Plane

_PART = 256 << 20
"""Bytes between two looks at the clock: a GPU copies these in less than a millisecond, to the host
in some ten.
"""


class CudaPath(Path):
    """The path to memory of a GPU of this machine."""

    name = "cuda"
    way = "both open the same memory of the GPU"

    def refusal(self, plane: Plane, lease: Lease, grant: Grant) -> str | None:
        if not grant.device.startswith("cuda"):
            return f"the memory is on the {grant.device}"
        if grant.place != here():
            return "the owner runs on another machine"
        return None if importlib.util.find_spec("torch") else "torch is not installed here"

    def connect(self, plane: Plane, lease: Lease, grant: Grant, deadline: Deadline) -> BufferLink:
        watch = ProcessWatch(grant.pid)
        question = ask(plane.hub, lease.info.owner, CudaRequest(lease.claim), "memory of a GPU")
        try:
            shared = question.get(timeout=deadline.left())
        except TimeoutError:
            subscribe(question, lambda: plane.workers.submit(lambda: _open_and_close(question)))
            raise deadline.error() from None
        return CudaLink(_open(shared), watch)

    def key(self, lease: Lease, grant: Grant) -> tuple[object, ...]:
        return (self.name, lease.info.owner, grant.pid, lease.info.id)


def _open(shared: bytes | Refusal) -> Any:
    """The tensor that an owner has handed out."""
    if isinstance(shared, Refusal):
        raise UnavailableError(shared.reason)
    try:
        return open_shared(shared)
    except Exception as error:
        # no CUDA here, no way between the two devices, a handle that was opened too late
        raise UnavailableError(f"torch can't open it: {type(error).__name__}: {error}") from None


def _open_and_close(question: Future[Any]) -> None:
    """Use up an answer that came too late: the owner's memory stays until it was opened once."""
    with suppress(Exception):  # of any kind: then nothing is open
        _open(question.get())


class CudaLink(BufferLink):
    """A link to one buffer."""

    path = "cuda"
    moves_devices = True

    def __init__(self, tensor: Any, watch: ProcessWatch) -> None:
        self._memory = DeviceMemory(tensor)
        self._watch = watch

    def move(
        self, pieces: Sequence[Piece], write: bool, deadline: Deadline, moved: Callable[[int], None]
    ) -> None:
        for piece in parts(pieces, _PART):
            deadline.check()
            self._watch.check()
            if write:
                copy_memory(self._memory, piece.offset, piece.memory, piece.start, piece.nbytes)
            else:
                copy_memory(piece.memory, piece.start, self._memory, piece.offset, piece.nbytes)
            moved(piece.nbytes)
        self._watch.check()
