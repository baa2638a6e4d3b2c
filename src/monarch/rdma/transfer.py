"""Carrying out a submission: leases, grants, the choice of paths, then the bytes.

Errors say which part failed.

Path of a transfer: the caller's thread checks the arguments. If everything is known and little is
to be moved, it moves it itself; otherwise a thread of the plane does. It asks each owner once for
the grants that are missing, then moves what goes the same way together. What ends its waits: the
owner's answer or end, or the deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from .._core.plane import PendingOperation, ProcAddress, Promise, completed
from ..actor import Future
from .errors import BufferAccessError, NoPathError, OwnerLostError, RDMAError, UnavailableError
from .grants.control_rpc import ask, ask_for_life, refused
from .grants.leases import Lease
from .grants.records import Grant, Open, Refusal, here
from .memory import HostMemory, Memory, memory_of
from .paths.choice import choose, give_up
from .paths.chunking import parts
from .paths.path import BufferLink, Deadline, Piece
from .plane import Plane
from .steps import Steps, in_turn, within

_INLINE = 1 << 20
"""Bytes up to which the caller's thread does it: that takes no longer than to have another thread
do it.
"""
_STAGE = 16 << 20
"""Bytes of host memory through which those of a GPU go where the path can't take them."""
_KNOWN_WITHIN = 0.5
"""Seconds to find out why an owner is gone; its agent knows within milliseconds."""


class Operation(NamedTuple):
    """One read or write of `nbytes`.

    It goes from `offset` of a buffer into (or from) local memory at `start`.

    In several rows of the same size, if `rows` is not 1: each begins `offset_step` bytes behind the
    one before in the buffer, and `start_step` bytes in local memory.
    """

    lease: Lease
    offset: int
    memory: Memory
    start: int
    nbytes: int
    write: bool
    rows: int = 1
    offset_step: int = 0
    start_step: int = 0


def submit(plane: Plane, operations: Sequence[Operation], deadline: Deadline) -> Future[None]:
    """Start.

    The future is done when every byte has arrived, or everything that can be done is done and
    the rest failed.
    """
    if not operations:
        return completed()
    transfer = _Transfer(plane, operations, deadline)
    if not deadline.left():
        transfer.end_with([deadline.error()])
    elif transfer.is_quick():
        transfer.run()
    else:
        plane.workers.submit(transfer.run)
    return transfer.future


def obtain_grants(
    plane: Plane, leases: Iterable[Lease], deadline: Deadline
) -> dict[Lease, Grant | RDMAError]:
    """The grants of the owners, or the reasons against; each is asked once for all of them."""
    found: dict[Lease, Grant | RDMAError] = {}
    missing: dict[ProcAddress, list[Lease]] = {}
    for lease in leases:
        grant = lease.grant
        if grant is not None:
            found[lease] = grant
        else:
            missing.setdefault(lease.info.owner, []).append(lease)
    questions = [
        (
            wanted,
            ask(plane.hub, owner, Open(here(), tuple(lease.claim for lease in wanted)), "access"),
        )
        for owner, wanted in missing.items()
    ]
    for wanted, question in questions:
        try:
            answers = question.get(timeout=deadline.left())
        except RDMAError as error:
            answers = [error] * len(wanted)
        except TimeoutError:
            answers = [deadline.error()] * len(wanted)
        for lease, answer in zip(wanted, answers, strict=True):
            found[lease] = refused(answer) if isinstance(answer, Refusal) else answer
            if isinstance(answer, Grant):
                lease.grant = answer
    return found


class _Described(PendingOperation):
    """The description of a transfer, for its future.

    It is apart from the transfer, of which the future is a part.
    """

    __slots__ = ("_count", "_info", "_write")
    name = "a transfer"

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._count = len(operations)
        self._info = operations[0].lease.info
        self._write = operations[0].write

    def describe(self) -> str:
        one = f"a {'write to' if self._write else 'read of'} {self._info}"
        return one if self._count == 1 else f"{self._count} transfers"


class _Transfer(Promise[None]):
    __slots__ = ("_errors", "_moved", "_operations", "_plane", "_unexplained", "deadline")

    def __init__(self, plane: Plane, operations: Sequence[Operation], deadline: Deadline) -> None:
        self._plane = plane
        self._operations = operations
        self._moved: list[int] = []  # bytes; appended to by several threads
        self._errors: list[Exception] = []
        self._unexplained: dict[RDMAError, tuple[Lease, str]] = {}  # by what they are to be located
        self.deadline = deadline
        super().__init__(_Described(operations))

    def is_quick(self) -> bool:
        """Return whether the transfer is done before another thread could begin."""
        size = 0
        for operation in self._operations:
            size += operation.nbytes
            link = operation.lease.link
            if (
                size > _INLINE
                or link is None
                or not link.inline
                or operation.memory.device != "cpu"
            ):
                return False
        return True

    def run(self) -> None:
        begun: list[Lease] = []
        try:
            for lease in {operation.lease: None for operation in self._operations}:
                try:
                    lease.begin()
                    # only those that have begun are ended below
                    begun.append(lease)
                except RDMAError as error:
                    self._note(error, lease)
            self._move(self._pieces(begun))
        except Exception as error:
            self._errors.append(error)
        finally:
            for lease in begun:
                # before the future is done: a `drop` waits for this, and may follow the transfer at
                # once
                lease.end()
        if self._unexplained:
            # the cause comes from the owner's agent: the broken path alone knows only that it broke
            in_turn(self._plane, self._explain(), "why an owner is gone")
        elif self._errors:
            self.end_with(self._errors)
        else:
            self.resolve(None)

    def end_with(self, errors: Sequence[Exception]) -> None:
        for error in errors:
            error.__traceback__ = None  # its frames hold references to the memory
        # that of a lost owner is there once for each of its buffers
        first, *others = dict.fromkeys(errors)
        if isinstance(first, RDMAError):
            first.transferred = sum(self._moved)
            first.others = tuple(others)
            info = self._operations[0].lease.info
            first.locate(str(info), info.owner_name, "")
        self.reject(first)

    def _note(self, error: RDMAError, lease: Lease, path: str = "") -> None:
        error.locate(str(lease.info), lease.info.owner_name, path)
        self._errors.append(error)
        if (
            isinstance(error, (OwnerLostError, NoPathError))
            and getattr(error, "failure", None) is None
        ):
            self._unexplained[error] = lease, path

    def _pieces(self, leases: Sequence[Lease]) -> tuple[list[Piece], list[Piece]]:
        """Return the reads and the writes that the owners allow."""
        grants = obtain_grants(self._plane, leases, self.deadline)
        for lease, answer in grants.items():
            if isinstance(answer, RDMAError):
                self._note(answer, lease)
        pieces: tuple[list[Piece], list[Piece]] = [], []
        for lease, offset, memory, start, nbytes, write, rows, *steps in self._operations:
            grant = grants.get(lease)
            if not isinstance(grant, Grant):  # refused, or dropped before: that is noted
                continue
            piece = Piece(lease, grant, offset, memory, start, nbytes, rows, *steps)
            if piece.end > grant.nbytes or (write and grant.readonly):
                reason = f"it has {grant.nbytes} bytes"
                if write and grant.readonly:
                    reason = "it is read-only"
                self._note(
                    BufferAccessError(f"{nbytes} bytes at {offset} are not to be had: {reason}"),
                    lease,
                )
            else:
                pieces[write].append(piece)
        return pieces

    def _move(self, pieces: tuple[Sequence[Piece], Sequence[Piece]]) -> None:
        """Move reads and writes.

        Those over one link go together, and several links work at the same time.
        """
        groups: dict[tuple[BufferLink, bool], list[Piece]] = {}
        for write, wanted in enumerate(pieces):
            for piece in wanted:
                try:
                    link = self._link(piece)
                except RDMAError as error:
                    self._note(error, piece.lease)
                else:
                    groups.setdefault((link, bool(write)), []).append(piece)
        self._plane.workers.spread(
            list(groups.items()), lambda group: self._move_group(*group[0], group[1])
        )

    def _link(self, piece: Piece) -> BufferLink:
        lease = piece.lease
        link = lease.link
        if link is None:
            link = lease.link = choose(self._plane, lease, piece.grant, self.deadline)
        return link

    def _move_group(self, link: BufferLink, write: bool, pieces: Sequence[Piece]) -> None:
        try:
            if not link.moves_devices:
                pieces = self._stage(link, write, pieces)
            link.move(pieces, write, self.deadline, self._moved.append)
        except UnavailableError as error:
            for piece in pieces:
                give_up(self._plane, piece.lease, piece.grant, link, str(error))
            # once more from the choice of a path, which leaves out the one just given up: this ends
            # when none is left
            self._move(((), pieces) if write else (pieces, ()))
        except RDMAError as error:
            self._note(error, pieces[0].lease, link.path)

    def _stage(self, link: BufferLink, write: bool, pieces: Sequence[Piece]) -> list[Piece]:
        """Move those of a GPU by way of host memory; returns the others."""
        for piece in parts([p for p in pieces if not isinstance(p.memory, HostMemory)], _STAGE):
            data = (
                piece.memory.read(piece.start, piece.nbytes)
                if write
                else memoryview(bytearray(piece.nbytes))
            )
            staged = piece._replace(memory=memory_of(data, "staging"), start=0)
            link.move([staged], write, self.deadline, self._moved.append)
            if not write:
                piece.memory.write(piece.start, data)
        return [piece for piece in pieces if isinstance(piece.memory, HostMemory)]

    def _explain(self) -> Steps[None]:
        """Ask the agents of owners why these are gone, and end with that.

        It may also be why no path leads there. In steps, as this thread may run an event loop.
        """
        owners = {lease.info.owner for lease, _ in self._unexplained.values()}
        hub, soon = self._plane.hub, Deadline(_KNOWN_WITHIN)
        answers = {owner: within(self._plane, ask_for_life(hub, owner), soon) for owner in owners}
        for error, (lease, path) in self._unexplained.items():
            try:
                yield answers[lease.info.owner]
            except OwnerLostError as explained:
                explained.locate(str(lease.info), lease.info.owner_name, path)
                self._errors[self._errors.index(error)] = explained
            except Exception:  # no answer in time: the error stays as it is
                continue
        self.end_with(self._errors)
