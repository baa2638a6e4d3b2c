"""`RDMAAction`: many transfers at one time, which may be repeated."""

from __future__ import annotations

import threading
from typing import Any

from ..._core.plane import Promise, completed, subscribe
from ...actor import Future
from ..paths.path import Deadline
from ..plane import Plane
from ..transfer import Operation, submit
from .buffer import RDMABuffer, checked_timeout
from .ranges import Accesses


class RDMAAction:
    """Reads and writes that are carried out together: one call for all that goes the same way.

    There is no order between them, so no two may touch the same bytes, unless both only read them.
    Arguments are checked when they are added; memory that was added stays alive as long as the
    action does.
    """

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._plane: Plane | None = None
        self._accesses: dict[object, Accesses] = {}
        self._lock = threading.Lock()
        self._last: Future[None] = completed()
        self._in_flight = 0

    def read_remote(
        self, dst: Any, buffer: RDMABuffer, *, offset: int = 0, nbytes: int | None = None
    ) -> RDMAAction:
        """Add a `RDMABuffer.read_into`; returns this action.

        Args:
            dst: As for `RDMABuffer.read_into`.
            buffer: The buffer to read.
            offset: As for `RDMABuffer.read_into`.
            nbytes: As for `RDMABuffer.read_into`.

        Raises:
            TypeError, ValueError: As `read_into`; or bytes are touched that another operation of
                this action touches.
            RuntimeError: The action is being carried out.
        """
        return self._add(buffer.plane, buffer.reading(dst, offset, nbytes))

    def write_remote(
        self, buffer: RDMABuffer, src: Any, *, offset: int = 0, nbytes: int | None = None
    ) -> RDMAAction:
        """Add a `RDMABuffer.write_from`; returns this action. Raises as `read_remote`.

        Args:
            buffer: The buffer to write.
            src: As for `RDMABuffer.write_from`.
            offset: As for `RDMABuffer.write_from`.
            nbytes: As for `RDMABuffer.write_from`.
        """
        return self._add(buffer.plane, buffer.writing(src, offset, nbytes))

    def submit(self, timeout: float = 60) -> Future[None]:
        """Start all operations; the future is done when all are.

        Submissions of one action take turns.

        All are tried, also if one fails; the first error is raised, and its `others` has the rest.

        Args:
            timeout: Seconds for all of it, from when its turn comes.

        Returns:
            A future that is done when all operations are.
        """
        seconds = checked_timeout(timeout)
        finished: Promise[None] = Promise(f"{len(self._operations)} transfers")
        with self._lock:
            before, self._last = self._last, finished.future
            self._in_flight += 1
        subscribe(before, lambda: self._start(seconds, finished))
        return finished.future

    def __repr__(self) -> str:
        writes = sum(operation.write for operation in self._operations)
        return f"<RDMAAction of {len(self._operations) - writes} reads and {writes} writes>"

    def _start(self, seconds: float, finished: Promise[None]) -> None:
        if self._plane is None:  # nothing was added
            self._end(completed(), finished)
            return
        transfer = submit(self._plane, self._operations, Deadline(seconds))
        subscribe(transfer, lambda: self._end(transfer, finished))

    def _end(self, transfer: Future[None], finished: Promise[None]) -> None:
        with self._lock:
            self._in_flight -= 1
        error = transfer.exception()
        if error is None:
            finished.resolve(None)
        else:
            finished.reject(error)

    def _add(self, plane: Plane, operation: Operation) -> RDMAAction:
        # in one row, as programs add them
        lease, offset, memory, start, nbytes, write = operation[:6]
        with self._lock:
            if self._in_flight:
                raise RuntimeError(
                    "this action is being carried out; add to it when its future is done"
                )
            remote = self._accesses.setdefault(lease.info, Accesses())
            local = self._accesses.setdefault(memory.device, Accesses())
            ranges = (
                (remote, "the buffer", offset, write),
                (local, "local memory", memory.address + start, not write),
            )
            for accesses, where, first, writes in ranges:
                if accesses.conflict(first, first + nbytes, writes) is not None:
                    raise ValueError(
                        f"{nbytes} bytes at {first:#x} of {where} overlap with those of another"
                        " operation of this action; the order is not defined, so use two actions"
                    )
            for accesses, _, first, writes in ranges:
                accesses.add(first, first + nbytes, writes)
            self._plane = plane
            self._operations.append(operation)
        return self
