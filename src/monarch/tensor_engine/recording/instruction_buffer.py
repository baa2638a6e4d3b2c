"""Buffers of instructions.

`coalescing` sends those of a block together, `recording` keeps them to replay them.

While a thread has a holder, `Engine.submit` hands it the instructions of that thread, and those who
make and use values tell it of them.
"""

from __future__ import annotations

import pickle
import threading
import traceback
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..controller.engine import Engine, Ranks, freeing, holder, holders
from ..instructions import FREE, MAIN, MOVE, PROGRAM, Instruction
from ..tensors.activation import no_mesh
from ..tensors.streams import Stream, stream_of
from ..tensors.tensor import Tensor, set_value
from ..tensors.tensor_base import Bar, Storage, Value
from ..worker.worker_collectives import BORROWS

if TYPE_CHECKING:
    import torch

    from ..tensors.borrows import IssuedBorrow


class InstructionBuffer:
    """The instructions that one thread has issued since the buffer was installed.

    Attributes:
        instructions: In order, each with where it goes.
        borrows: Borrows begun meanwhile.
        moved: Handles that are of another value since, and that of before: their shape was changed
            in place, for one.
    """

    what = "coalescing()"

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.instructions: list[tuple[Ranks, Instruction]] = []
        self.borrows: list[IssuedBorrow] = []
        self.streams: dict[int, Stream] = {}  # they must not end before
        self.moved: list[tuple[weakref.ref[Tensor], Value]] = []
        self._outer: InstructionBuffer | None = None
        self._born: list[weakref.ref[Value]] = []
        self._known: dict[Storage, torch.Tensor] = {}

    @contextmanager
    def installed(self) -> Iterator[None]:
        """A context in which it is this thread's holder. If that raises, nothing was issued."""
        thread = threading.get_ident()
        before = self._outer = holders.get(thread)
        holders[thread] = self
        try:
            yield
            if any(borrow.is_open for borrow in self.borrows):
                raise RuntimeError(
                    f"a borrow made in {self.what} must be dropped in there: borrow.drop(), or"
                    " `with borrow:`"
                )
        except BaseException:
            self.void(f"it was made in {self.what}, which raised, so that nothing of it was done")
            raise
        finally:
            if before is None:
                del holders[thread]
            else:
                holders[thread] = before

    def take(self, engine: Engine, ranks: Ranks, instruction: Instruction, now: bool) -> None:
        """Hold an instruction.

        Args:
            engine: The engine that issues it.
            ranks: The ranks that run it.
            instruction: The instruction.
            now: What it refers to may change.

        Raises:
            ValueError: It is for another engine than those before.
        """
        if self.engine is None:
            self.engine = engine
        elif engine is not self.engine:
            raise ValueError(f"{self.what} takes operations of one tensor engine, got some of two")
        for each in freeing(ranks):
            # values freed so far are freed before this instruction, as without a buffer
            self.take_freed(*each)
        if ranks.stream > MAIN:
            self.streams[ranks.stream] = stream_of(ranks.stream)
        self.instructions.append(
            # a copy, as of a message that is sent: the program may change its arrays before the
            # block ends
            (ranks, pickle.loads(pickle.dumps(instruction, 5)) if now else instruction)
        )

    def take_freed(self, ranks: Ranks, instruction: Instruction) -> None:
        self.instructions.append((ranks, instruction))

    def note(self, tensors: Sequence[Tensor]) -> None:
        """These are about to be used."""

    def born(self, value: Value) -> None:
        """This is about to be made."""
        self._born.append(weakref.ref(value))

    def moves(self, tensor: Tensor) -> None:
        """This handle is about to be one of another value."""
        self.moved.append((weakref.ref(tensor), tensor._value))

    def changes(self, storages: Iterable[Storage]) -> None:
        """Save the controller's copies of these storages, which are about to change."""
        for storage in storages:
            if storage.known is not None and storage not in self._known:
                with no_mesh.activate():
                    self._known[storage] = storage.known.clone()

    def borrowed(self, borrow: IssuedBorrow) -> None:
        """This begins."""
        self.borrows.append(borrow)

    def may_know(self, value: Value) -> bool:
        """Return whether the controller's copy of a value may be used."""
        return True

    def draws(self, function: str) -> None:
        """This operation draws random numbers from a generator of the program."""

    def reference(self, value: Value) -> int:
        """Return the number that stands for a value in pickled arguments."""
        return value.id

    def void(self, why: str) -> None:
        """Void the handles made since; restore those that were there before."""
        for borrow in self.borrows:
            borrow.void()
        for handle, value in reversed(self.moved):
            if (tensor := handle()) is not None:
                set_value(tensor, value)
        for storage, known in self._known.items():
            storage.known = known
        nowhere = Storage()
        nowhere.barred = Bar("DROPPED", f"    {why}\n{''.join(traceback.format_stack()[:-2])}")
        for reference in self._born:
            if (made := reference()) is not None:
                made.storage = nowhere  # its own: it may be a view of what can still be used
        for ranks, instruction in self.instructions:
            if self._is_of_before(instruction):
                self._pass_on(ranks, instruction)

    def _is_of_before(self, instruction: Instruction) -> bool:
        """Return whether an instruction must run even if the rest fails.

        It frees, begins or ends an earlier value.
        """
        what = instruction[0]
        return what in (FREE, PROGRAM) or self._is_borrow_of_before(instruction)

    def _is_borrow_of_before(self, instruction: Instruction) -> bool:
        if instruction[0] != MOVE or instruction[2] not in BORROWS:
            return False
        ticket = instruction[3][0]
        return not any(borrow.ticket == ticket for borrow in self.borrows)

    def _pass_on(self, ranks: Ranks, instruction: Instruction) -> None:
        """Pass instructions on to the ranks, after those of an outer holder."""
        if self.engine is None:
            return
        if self._outer is not None and self._outer.engine is self.engine:
            self._outer.take_freed(ranks, instruction)
        else:
            self.engine.pass_on(ranks, instruction)


@contextmanager
def coalescing() -> Iterator[None]:
    """Send all that is issued in a block together, when it ends: one message per rank.

    If it raises, nothing is sent, and tensors made in it can't be used.

    Blocks in blocks belong to the outermost. Tensors made in the block can be used after it;
    nothing can be fetched in it.

    Raises:
        ValueError: There are operations of two tensor engines.
        RuntimeError: A borrow was made in the block and not dropped.
        NotImplementedError: Something was fetched in the block, or sent to an actor.
    """
    if holder() is not None:
        yield
        return
    held = InstructionBuffer()
    with held.installed():
        yield
    if held.engine is not None:
        held.engine.submit_held(held.instructions)
