"""Path ``messages``: bytes travel in chunks, in messages between the two processes.

It is open wherever messages are.

Several chunks are under way at a time, so that the owner writes one while this side copies another.
The owner's side is a thread of the plane, never an actor's. On one host chunks of 256 KiB and more
travel in shared memory, as all messages do. Copies: two on one host (into the shared memory, and
out of it), and as many as the wire makes between hosts.

What ends a wait: the answer, the end of the owner's process, or the deadline of the transfer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pickle import PickleBuffer
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any

from ... import config
from ..._core.plane import subscribe
from ...actor import Future
from ..grants.control_rpc import ask, refused
from ..grants.records import Get, Grant, Put, Refusal
from .chunking import parts
from .path import BufferLink, Deadline, Path, Piece

if TYPE_CHECKING:
    from ..grants.leases import Lease
    from ..plane import Plane

_CHUNK = 4 << 20
"""Bytes; no more than `rdma_max_chunk_size_mb`.

Measured on one host: larger ones leave one side waiting for the other.
"""
_UNDER_WAY = 4
"""Chunks asked for at a time: enough to keep both sides copying, and bounded, so that memory is."""


class MessagesPath(Path):
    """The path that is open wherever messages are."""

    name = "messages"
    way = "in chunks, in messages"

    def refusal(self, plane: Plane, lease: Lease, grant: Grant) -> str | None:
        return (
            None if config.value("rdma_allow_tcp_fallback") else "rdma_allow_tcp_fallback is False"
        )

    def connect(self, plane: Plane, lease: Lease, grant: Grant, deadline: Deadline) -> BufferLink:
        return MessagesLink(plane)


class MessagesLink(BufferLink):
    """A link that asks the owner's process for chunks, or sends them to it."""

    path = "messages"

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    def move(
        self, pieces: Sequence[Piece], write: bool, deadline: Deadline, moved: Callable[[int], None]
    ) -> None:
        answers: Queue[tuple[Piece, Future[Any]]] = Queue()
        waiting = parts(pieces, min(_CHUNK, config.value("rdma_max_chunk_size_mb") << 20))
        under_way = 0
        try:
            while True:
                while under_way < _UNDER_WAY and (piece := next(waiting, None)) is not None:
                    deadline.check()
                    self._ask(piece, write, answers)
                    under_way += 1
                if not under_way:
                    return
                piece, answer = answers.get(timeout=deadline.left())
                under_way -= 1
                _take(piece, answer.get(), write)
                moved(piece.nbytes)
        except Empty:
            raise deadline.error() from None

    def _ask(self, piece: Piece, write: bool, answers: Queue[tuple[Piece, Future[Any]]]) -> None:
        claim, owner = piece.lease.claim, piece.lease.info.owner
        if write:
            data = PickleBuffer(piece.memory.read(piece.start, piece.nbytes))
            future = ask(
                self._plane.hub, owner, Put(claim, piece.offset, data), "a chunk to be taken"
            )
        else:
            future = ask(self._plane.hub, owner, Get(claim, piece.offset, piece.nbytes), "a chunk")
        # whichever comes first is written first: with several under way none waits for a slower one
        subscribe(future, lambda: answers.put((piece, future)))


def _take(piece: Piece, answer: Any, write: bool) -> None:
    if isinstance(answer, Refusal):
        raise refused(answer)
    if not write:
        piece.memory.write(piece.start, memoryview(answer))
