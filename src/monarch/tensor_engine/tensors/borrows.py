"""Borrows: how a tensor of one stream is used by another, without a copy and without a race.

On each rank a borrow is up to four instructions, two for each stream, which `stream_rendezvous`
bring together:

==================  ==========  ==================================================================
instruction         stream      issued
==================  ==========  ==================================================================
``offer``           origin      by `Stream.borrow`: the borrower sees all writes issued before
``accept``          borrower    before its first use
``give_back``       borrower    after its last use: when its last handle is gone, or the borrow ends
``take_back``       origin      by `Borrow.drop`
==================  ==========  ==================================================================

What may be done with a tensor meanwhile is checked as operations are issued: see `tensor.Storage`.
"""

from __future__ import annotations

import sys
import threading
import traceback
import warnings
import weakref
from typing import Any

from .. import call_sites
from ..controller.engine import holder
from ..instructions import MOVE, Instruction
from .streams import Borrow, Stream
from .tensor_base import Bar, Storage, Value

_readers: weakref.WeakKeyDictionary[Storage, int] = weakref.WeakKeyDictionary()


class IssuedBorrow(Borrow):
    """A borrow that the ranks are told of by instructions."""

    def __init__(self, origin: Value, stream: Stream, mutable: bool) -> None:
        self.mutable = mutable
        self.made = _stack()
        self._site = call_sites.here()  # finalizers can't look for it: that takes a lock
        self._origin = origin  # keeps its memory: the borrower uses it
        self._engine = origin.mesh.engine
        self._lane = self._engine.group(origin.lane.ranks, stream.number)
        self._stream = stream
        self._ticket = next(self._engine.ids)
        self._root = next(self._engine.ids)
        self._used = False
        self._ended = False
        self._lock = threading.Lock()
        self._lent: weakref.ref[_Lent] | None = None
        self._further: weakref.WeakSet[IssuedBorrow] = weakref.WeakSet()

    def start(self) -> Value:
        """Take the tensor from its stream; returns the value that the borrower has."""
        origin = self._origin
        if (held := holder()) is not None:
            held.borrowed(self)
        self._engine.submit(origin.lane, _move("offer", self._ticket, origin.id))
        owner = origin.storage
        if self.mutable:
            if held is not None:
                held.changes([owner])
            owner.barred, owner.known = Bar("BORROWED", self.made), None
        else:
            _readers[owner] = _readers.get(owner, 0) + 1
            owner.frozen = Bar("MUTATING_BORROW", self.made)
        if isinstance(owner, _Lent):
            owner.borrow._further.add(self)
        lent = _Lent(self)
        self._lent = weakref.ref(lent)
        value = Value(self._root, origin.mesh, self._lane, origin.meta, lent)
        if held is not None:
            held.born(value)
        return value

    def begin(self) -> None:
        """This stream is about to use the tensor for the first time."""
        with self._lock:
            lent = self._lent() if self._lent is not None else None
            if self._used or self._ended or lent is None:
                return
            self._engine.submit(self._lane, _move("accept", self._ticket, self._root))
            self._used = True
            lent.barred = None

    def drop(self) -> None:
        # first: borrows of this borrow use the same memory
        for borrow in list(self._further):
            borrow.drop()
        with self._lock:
            if self._ended:
                return
            self._end()
        for lane, instruction in self._last_instructions():
            self._engine.submit(lane, instruction)

    def void(self) -> None:
        """End it without a word to the ranks, which have never heard of it."""
        if not self._ended:
            self._end()

    @property
    def ticket(self) -> int:
        return self._ticket

    @property
    def origin(self) -> Value:
        return self._origin

    @property
    def is_open(self) -> bool:
        return not self._ended

    def _end(self) -> None:
        self._ended = True
        lent = self._lent() if self._lent is not None else None
        if lent is not None:
            lent.barred = Bar("DROPPED", _stack())
        owner = self._origin.storage
        if self.mutable:
            owner.barred = None
            return
        _readers[owner] -= 1
        if not _readers[owner]:
            owner.frozen = owner.borrow.bar_of_writes if isinstance(owner, _Lent) else None

    @property
    def bar_of_writes(self) -> Bar | None:
        """Why the borrower can't write."""
        return None if self.mutable else Bar("MUTATING_BORROW", self.made)

    def last_use(self) -> None:
        """The borrower's last handle is gone: on any thread, inside of any lock."""
        if self._used and not self._ended:
            # queued only, as in `IssuedBorrow.__del__`
            self._lane.freed.append((self._lane, self._give_back()))

    def _last_instructions(self) -> list[tuple[Any, Instruction]]:
        args = (self._ticket, self._origin.id, self._used)
        back: tuple[Any, Instruction] = (self._origin.lane, (MOVE, self._site, "take_back", args))
        return [(self._lane, self._give_back()), back] if self._used else [back]

    def _give_back(self) -> Instruction:
        return (MOVE, self._site, "give_back", (self._ticket, self._root))

    def __del__(self) -> None:
        """Called on any thread, inside of any lock.

        What ends it on the ranks goes out before the origin's next instruction.
        """
        if self._ended or self._lent is None or sys.is_finalizing():
            return
        self._end()
        # not submitted: that takes a lock, which the thread that runs this finalizer may hold
        self._origin.lane.freed.extend(self._last_instructions())
        warnings.warn(
            f"{self!r} was forgotten without drop(). It was made here:\n{self.made}", stacklevel=2
        )

    def __repr__(self) -> str:
        kind = "mutable borrow" if self.mutable else "borrow"
        state = "ended" if self._ended else "open"
        return f"<{kind} by {self._stream!r}, {state}>"


class _Lent(Storage):
    """The borrower's side of a tensor. It dies with the borrower's last handle."""

    __slots__ = ("borrow",)

    def __init__(self, borrow: IssuedBorrow) -> None:
        super().__init__()
        self.borrow = borrow
        self.barred = borrow
        self.frozen = borrow.bar_of_writes

    def __del__(self) -> None:
        self.borrow.last_use()


def _move(name: str, *args: Any) -> Instruction:
    return (MOVE, call_sites.here(), name, args)


def _stack() -> str:
    return "".join(traceback.format_stack()[:-3])
