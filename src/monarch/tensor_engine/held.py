"""Instructions that are held back: `coalescing` sends those of a block together, `recording` keeps them to replay them.

While a thread has a holder, `Engine.submit` hands it the instructions of that thread, and those who make and use values tell it
of them.
"""

from __future__ import annotations

import pickle
import threading
import traceback
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .engine import Engine, Ranks, freeing, holder, holders
from .instructions import FREE, MAIN, Instruction
from .streams import Stream, stream_of
from .tensor import Bar, Storage, Value

if TYPE_CHECKING:
    from .borrows import Borrow


class Held:
    """What one thread has issued since the holder was installed.

    Attributes:
        instructions: In order, each with where it goes.
        borrows: What was borrowed meanwhile.
    """

    what = "coalescing()"

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.instructions: list[tuple[Ranks, Instruction]] = []
        self.borrows: list[Borrow] = []
        self.streams: dict[int, Stream] = {}  # they must not end before
        self._storages: list[weakref.ref[Storage]] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """In here it is this thread's holder. If that raises, nothing was ever issued."""
        thread = threading.get_ident()
        before = holders.get(thread)
        holders[thread] = self
        try:
            yield
            if any(borrow.is_open for borrow in self.borrows):
                raise RuntimeError(
                    f"a borrow made in {self.what} must be dropped in there: borrow.drop(), or `with borrow:`"
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
            now: What it refers to may change.

        Raises:
            ValueError: It is for another engine than those before.
        """
        if self.engine is None:
            self.engine = engine
        elif engine is not self.engine:
            raise ValueError(f"{self.what} takes operations of one tensor engine, got some of two")
        for each in freeing(ranks):
            self.take_freed(*each)
        if ranks.stream > MAIN:
            self.streams[ranks.stream] = stream_of(ranks.stream)
        self.instructions.append((ranks, pickle.loads(pickle.dumps(instruction, 5)) if now else instruction))

    def take_freed(self, ranks: Ranks, instruction: Instruction) -> None:
        self.instructions.append((ranks, instruction))

    def note(self, values: Sequence[Value]) -> None:
        """These are about to be used."""

    def born(self, value: Value, is_new: bool) -> None:
        """This is about to be made; with memory of its own, or it shares that of another."""
        if is_new:
            self._storages.append(weakref.ref(value.storage))

    def borrowed(self, borrow: Borrow) -> None:
        """This begins."""
        self.borrows.append(borrow)

    def may_know(self, value: Value) -> bool:
        """Whether what the controller knows of a value may be used."""
        return True

    def reference(self, value: Value) -> int:
        """What stands for a value in pickled arguments."""
        return value.id

    def void(self, why: str) -> None:
        """Of what was made, nothing can be used any more."""
        for borrow in self.borrows:
            borrow.void()
        bar = Bar("DROPPED", f"    {why}\n{''.join(traceback.format_stack()[:-2])}")
        for reference in self._storages:
            storage = reference()
            if storage is not None:
                storage.barred = bar
        for ranks, instruction in self.instructions:
            if instruction[0] == FREE and self.engine is not None:
                self.engine.pass_on(ranks, instruction)  # some of it was made before


@contextmanager
def coalescing() -> Iterator[None]:
    """Send all that is issued in a block together, when it ends: one message per rank. If it raises, nothing is sent, and what was
    made in it can't be used.

    Blocks in blocks belong to the outermost. Tensors made in the block can be used after it; nothing can be fetched in it.

    Raises:
        ValueError: There are operations of two tensor engines.
        RuntimeError: A borrow was made in the block and not dropped.
        NotImplementedError: Something was fetched in the block, or sent to an actor.
    """
    if holder() is not None:
        yield
        return
    held = Held()
    with held.installed():
        yield
    if held.engine is not None:
        held.engine.submit_held(held.instructions)
