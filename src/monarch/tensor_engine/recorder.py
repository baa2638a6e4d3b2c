"""What one call of a recorded function has issued: kept, taken apart by rank and stream, and compared."""

from __future__ import annotations

import difflib
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .activation import no_mesh
from .engine import Engine, Ranks
from .held import Held
from .instructions import CALL, CONSTANT, FREE, MOVE, Instruction
from .movers import BORROWS, USES, Uses
from .programs import call_text
from .tensor import Storage, Value

_SHOWN = 200  # characters of a constant
_RANKS = 8  # shown of a set


class Recorder(Held):
    """Holds the instructions of one call.

    Attributes:
        arguments: Values of the tensors among the arguments.
        used: Values that were not made in the call, by id.
        written: Their storages, where those are written to.
        references: What stands for a value in pickled arguments, and its id.
    """

    what = "a recorded function"

    def __init__(self, arguments: Sequence[Value]) -> None:
        super().__init__()
        self.arguments = [value.id for value in arguments]
        self.used: dict[int, Value] = {}
        self.written: list[Storage] = []
        self.references: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._made: dict[int, weakref.ref[Storage]] = {}
        self._elsewhere: set[int] = set()  # ids of storages that `used` keeps
        self.note(arguments)

    def note(self, values: Sequence[Value]) -> None:
        for value in values:
            if value.id not in self._made and value.id not in self.used:
                self.used[value.id] = value
                self._elsewhere.add(id(value.storage))

    def born(self, value: Value, is_new: bool) -> None:
        super().born(value, is_new)
        self._made[value.id] = weakref.ref(value.storage)

    def borrowed(self, borrow: Any) -> None:
        super().borrowed(borrow)
        if borrow.mutable:
            self._note_write(borrow.origin.id)

    def may_know(self, value: Value) -> bool:
        return id(value.storage) not in self._elsewhere and value.id in self._made

    def reference(self, value: Value) -> int:
        """A number that does not depend on what else the program does, so that two recordings look the same."""
        number = self._numbers.setdefault(value.id, -1 - len(self._numbers))
        self.references[number] = value.id
        return number

    def take(self, engine: Engine, ranks: Ranks, instruction: Instruction, now: bool) -> None:
        if instruction[0] == MOVE and instruction[2] in BORROWS and not self._is_ours(instruction[3][0]):
            engine.pass_on(ranks, instruction)  # it happens once, not in each replay
            return
        super().take(engine, ranks, instruction, now)
        for ref in uses(engine, instruction).writes:
            self._note_write(ref)

    def take_freed(self, ranks: Ranks, instruction: Instruction) -> None:
        """Only what was made in the call is freed by each replay."""
        if instruction[0] == FREE:
            here = [ref for ref in instruction[1] if ref in self._made]
            elsewhere = [ref for ref in instruction[1] if ref not in self._made]
            if here:
                self.instructions.append((ranks, (FREE, here)))
            if elsewhere and self.engine is not None:
                self.engine.pass_on(ranks, (FREE, elsewhere))
        elif instruction[0] == MOVE and self._is_ours(instruction[3][0]):
            self.instructions.append((ranks, instruction))
        elif self.engine is not None:
            self.engine.pass_on(ranks, instruction)

    def _is_ours(self, ticket: int) -> bool:
        """Whether a borrow was made in the call."""
        return any(borrow.ticket == ticket for borrow in self.borrows)

    def _note_write(self, ref: int) -> None:
        storage = self.used[ref].storage if ref in self.used else self._made[ref]()
        if storage is not None and id(storage) in self._elsewhere and not any(storage is each for each in self.written):
            self.written.append(storage)

    def was_made(self, value: Value) -> bool:
        """Whether it was made in the call."""
        return value.id in self._made

    # taken apart

    def formals(self) -> list[int]:
        """Ids of what the instructions use and do not make, in the order of their first use."""
        engine: Any = self.engine
        found: dict[int, None] = {}
        for _, instruction in self.instructions:
            found.update(dict.fromkeys(ref for ref in uses(engine, instruction).inputs if ref in self.used))
        return list(found)

    def is_on(self, ref: int, lane: Ranks) -> bool:
        """Whether some ranks have a value that was not made in the call, on their stream."""
        there = self.used[ref].lane
        return there.stream == lane.stream and lane.members <= there.members

    def parts(self) -> Iterator[tuple[Ranks, list[Instruction], set[int]]]:
        """The instructions of each stream of ranks that have the same ones, and the ids of what they make."""
        if self.engine is None:
            return
        for stream in dict.fromkeys(ranks.stream for ranks, _ in self.instructions):
            mine = [(ranks, instruction) for ranks, instruction in self.instructions if ranks.stream == stream]
            groups = list(dict.fromkeys(ranks for ranks, _ in mine))
            by_groups: dict[tuple[Ranks, ...], list[int]] = {}
            for rank in self.engine.everyone.ranks:
                key = tuple(ranks for ranks in groups if rank in ranks.members)
                by_groups.setdefault(key, []).append(rank)
            for theirs, members in by_groups.items():
                if theirs:
                    instructions = [instruction for ranks, instruction in mine if ranks in theirs]
                    made = itertools.chain.from_iterable(uses(self.engine, each).outputs for each in instructions)
                    yield self.engine.group(members, stream), [self._as_sent(each) for each in instructions], set(made)

    def _as_sent(self, instruction: Instruction) -> Instruction:
        if instruction[0] != CALL:
            return instruction
        what, site, call = instruction
        numbers = self._numbers
        inputs = tuple(numbers[ref] for ref in call.inputs)
        return what, site, call._replace(inputs=inputs, writes=tuple(numbers[ref] for ref in call.writes))

    # compared

    def lines(self, captures: dict[int, str]) -> list[str]:
        """A line for each instruction, the same for two recordings that do the same.

        Args:
            captures: Names of values that both may use, by id.
        """
        names = {**captures, **{ref: f"argument{index}" for index, ref in enumerate(self.arguments)}}
        count = itertools.count()

        def name(ref: int) -> str:
            if ref not in names:
                names[ref] = f"v{next(count)}" if ref in self._made else f"a tensor from elsewhere (no. {ref})"
            return names[ref]

        engine: Any = self.engine
        found = []
        for ranks, instruction in self.instructions:
            if instruction[0] != FREE:  # when garbage is collected does not matter
                call = _shown_call(engine, instruction, name)
                made = "".join(f" -> {name(ref)}" for ref in uses(engine, instruction).outputs)
                found.append(f"{call}{made}  on {_where(ranks)}")
        return found


def difference(before: Recorder, now: Recorder) -> str:
    """How two recordings differ, as text; empty if they do not."""
    captures = {ref: f"capture{index}" for index, ref in enumerate(before.used.keys() - set(before.arguments))}
    with no_mesh.activate():
        both = before.lines(captures), now.lines(captures)
    return "\n".join(difflib.unified_diff(*both, "recorded", "now", lineterm="", n=2))


def uses(engine: Engine, instruction: Instruction) -> Uses:
    """The ids in an instruction."""
    what = instruction[0]
    if what >= 0:
        _, _, inputs, outputs, _ = instruction
        template = engine.described[what]
        made = (outputs,) if type(outputs) is int else tuple(ref for ref in outputs if ref)
        return Uses(inputs, made, (), tuple(inputs[index] for index in template.writes))
    if what == CALL:
        call = instruction[2]
        made = tuple(ref for ref in call.outputs or () if ref)
        return Uses(call.inputs, made, (call.payload[0],), call.writes)
    if what == CONSTANT:
        return Uses((), (instruction[2],), (instruction[3],))
    if what == MOVE:
        if instruction[2] not in USES:
            raise NotImplementedError(
                "a move to another engine can't be recorded: call to_mesh outside of the recorded function"
            )
        return USES[instruction[2]](*instruction[3])
    return Uses((), ())


def _shown_call(engine: Engine, instruction: Instruction, name: Callable[[int], str]) -> str:
    what = instruction[0]
    if what >= 0:
        _, _, inputs, _, numbers = instruction
        template = engine.described[what]
        return call_text(
            template.path, template, lambda index: name(inputs[index]), lambda index: repr(numbers[index]), _shown
        )
    use = uses(engine, instruction)
    return f"{_operation(instruction)}({', '.join([*map(name, use.inputs), *map(_shown, use.rest)])})"


def _operation(instruction: Instruction) -> str:
    if instruction[0] == CALL:
        function = instruction[2].function
        return function if isinstance(function, str) else f"a function of {len(function)} bytes"
    return "constant" if instruction[0] == CONSTANT else str(instruction[2])


def _shown(value: Any) -> str:
    text = repr(value.tolist() if hasattr(value, "tolist") else value)
    return text if len(text) < _SHOWN else f"{text[:_SHOWN]}... (#{hash(text) & 0xFFFFFF:x})"


def _where(ranks: Ranks) -> str:
    shown = ", ".join(map(str, ranks.ranks[:_RANKS])) + (", ..." if len(ranks.ranks) > _RANKS else "")
    return f"ranks {shown} of stream {ranks.stream}"
