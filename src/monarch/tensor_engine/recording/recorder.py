"""The instructions of one call of a recorded function: kept, split by rank and stream, compared."""

from __future__ import annotations

import difflib
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..controller.engine import Engine, Ranks
from ..instructions import CALL, CONSTANT, FREE, Instruction, uses
from ..tensors.activation import no_mesh
from ..tensors.tensor import Tensor
from ..tensors.tensor_base import Storage, Value
from ..worker.templates import call_text
from .instruction_buffer import InstructionBuffer

_SHOWN = 200  # characters of a constant
_RANKS = 8  # shown of a set


class Recorder(InstructionBuffer):
    """Holds the instructions of one call.

    Attributes:
        arguments: Values of the tensors among the arguments.
        used: Values that were not made in the call, by id.
        written: Their storages, where those are written to.
        shown: Their storages, where functions of the user get them: who knows what they do to them.
        references: What stands for a value in pickled arguments, and its id.
    """

    what = "a recorded function"

    def __init__(self, arguments: Sequence[Tensor]) -> None:
        super().__init__()
        self.arguments = [tensor._value.id for tensor in arguments]
        self.used: dict[int, Value] = {}
        self.written: dict[Storage, None] = {}
        self.shown: dict[Storage, None] = {}
        self.references: dict[int, int] = {}
        self._numbers: dict[int, int] = {}
        self._made: dict[int, weakref.ref[Storage]] = {}
        self._elsewhere: set[Storage] = set()
        self._versions: dict[int, tuple[weakref.ref[Tensor], int]] = {}  # of handles, by their id
        self.note(arguments)

    def note(self, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            value = tensor._value
            if value.id in self._made:
                continue
            if value.id not in self.used:
                self.used[value.id] = value
                self._elsewhere.add(value.storage)
            seen = self._versions.get(id(tensor))
            if (seen is None or seen[0]() is not tensor) and not tensor.is_inference():
                self._versions[id(tensor)] = weakref.ref(tensor), tensor._version

    def changed(self) -> list[Tensor]:
        """The handles of imported tensors that were written to.

        They are those of which the version is a new one.
        """
        found = [(handle(), version) for handle, version in self._versions.values()]
        return [
            tensor for tensor, version in found if tensor is not None and tensor._version != version
        ]

    def handle_of(self, storage: Storage) -> Tensor | None:
        """Return a live handle, made before the recording, of a tensor with this storage."""
        found = (handle() for handle, _ in self._versions.values())
        return next(
            (tensor for tensor in found if tensor is not None and tensor._value.storage is storage),
            None,
        )

    def born(self, value: Value) -> None:
        super().born(value)
        self._made[value.id] = weakref.ref(value.storage)

    def borrowed(self, borrow: Any) -> None:
        super().borrowed(borrow)
        if borrow.mutable:
            self._note(self.written, borrow.origin.id)

    def may_know(self, value: Value) -> bool:
        return value.storage not in self._elsewhere and value.id in self._made

    def draws(self, function: str) -> None:
        raise NotImplementedError(
            f"{function}: with generator= it would draw the same in each replay of {self.what}."
            " Leave it out: then each rank draws from its own, which torch.manual_seed seeds"
        )

    def reference(self, value: Value) -> int:
        """A number that depends on this recording alone, so that two recordings look the same."""
        number = self._numbers.setdefault(value.id, -1 - len(self._numbers))
        self.references[number] = value.id
        return number

    def take(self, engine: Engine, ranks: Ranks, instruction: Instruction, now: bool) -> None:
        if self._is_borrow_of_before(instruction):
            self.engine = self.engine or engine
            self._pass_on(ranks, instruction)  # it happens once, not in each replay
            return
        super().take(engine, ranks, instruction, now)
        use = uses(engine.described, instruction)
        for ref in use.writes:
            self._note(self.written, ref)
        for ref in use.inputs if instruction[0] == CALL else ():
            self._note(self.shown, ref)

    def take_freed(self, ranks: Ranks, instruction: Instruction) -> None:
        """Record frees only of values made in the call; each replay frees those again."""
        if instruction[0] == FREE:
            here = [ref for ref in instruction[1] if ref in self._made]
            elsewhere = [ref for ref in instruction[1] if ref not in self._made]
            if here:
                self.instructions.append((ranks, (FREE, here)))
            if elsewhere:
                self._pass_on(ranks, (FREE, elsewhere))
        elif self._is_of_before(instruction):
            self._pass_on(ranks, instruction)
        else:
            self.instructions.append((ranks, instruction))

    def _note(self, storages: dict[Storage, None], ref: int) -> None:
        storage = self.used[ref].storage if ref in self.used else self._made[ref]()
        if storage is not None and storage in self._elsewhere:
            storages[storage] = None

    def was_made(self, value: Value) -> bool:
        """Return whether the value was made in the call."""
        return value.id in self._made

    def moved_elsewhere(self) -> bool:
        """Return whether the shape of a tensor from outside the call was changed in place."""
        return any(
            handle() is not None and not self.was_made(value) for handle, value in self.moved
        )

    # taken apart

    def formals(self) -> list[int]:
        """Ids of what the instructions use and do not make, in the order of their first use."""
        engine: Any = self.engine
        found: dict[int, None] = {}
        for _, instruction in self.instructions:
            found.update(
                dict.fromkeys(
                    ref for ref in uses(engine.described, instruction).inputs if ref in self.used
                )
            )
        return list(found)

    def is_on(self, ref: int, lane: Ranks) -> bool:
        """Return whether some ranks have a value from outside the call, on their stream."""
        there = self.used[ref].lane
        return there.stream == lane.stream and lane.members <= there.members

    def parts(self) -> Iterator[tuple[Ranks, list[Instruction], set[int]]]:
        """The instructions of each stream, and the ids of what they make.

        Ranks with the same instructions are together.
        """
        if self.engine is None:
            return
        for stream in dict.fromkeys(ranks.stream for ranks, _ in self.instructions):
            mine = [
                (ranks, instruction)
                for ranks, instruction in self.instructions
                if ranks.stream == stream
            ]
            groups = list(dict.fromkeys(ranks for ranks, _ in mine))
            by_groups: dict[tuple[Ranks, ...], list[int]] = {}
            for rank in self.engine.everyone.ranks:
                key = tuple(ranks for ranks in groups if rank in ranks.members)
                by_groups.setdefault(key, []).append(rank)
            for theirs, members in by_groups.items():
                if theirs:
                    instructions = [instruction for ranks, instruction in mine if ranks in theirs]
                    made = itertools.chain.from_iterable(
                        uses(self.engine.described, each).outputs for each in instructions
                    )
                    yield (
                        self.engine.group(members, stream),
                        [self._as_sent(each) for each in instructions],
                        set(made),
                    )

    def _as_sent(self, instruction: Instruction) -> Instruction:
        if instruction[0] != CALL:
            return instruction
        what, site, call = instruction
        numbers = self._numbers
        inputs = tuple(numbers[ref] for ref in call.inputs)
        return (
            what,
            site,
            call._replace(inputs=inputs, writes=tuple(numbers[ref] for ref in call.writes)),
        )

    # compared

    def lines(self, captures: dict[int, str]) -> list[str]:
        """A line for each instruction, the same for two recordings that do the same.

        Args:
            captures: Names of values that both may use, by id.
        """
        names = {
            **captures,
            **{ref: f"argument{index}" for index, ref in enumerate(self.arguments)},
        }
        count = itertools.count()

        def name(ref: int) -> str:
            if ref not in names:
                names[ref] = (
                    f"v{next(count)}"
                    if ref in self._made
                    else f"a tensor from elsewhere (no. {ref})"
                )
            return names[ref]

        engine: Any = self.engine
        found = []
        for ranks, instruction in self.instructions:
            if instruction[0] != FREE:  # when garbage is collected does not matter
                call = _shown_call(engine, instruction, name)
                made = "".join(
                    f" -> {name(ref)}" for ref in uses(engine.described, instruction).outputs
                )
                found.append(f"{call}{made}  on {_where(ranks)}")
        return found


class Shown:
    """A recording as text, to be compared with another one.

    Made at once: the engine does not describe its templates for ever.
    """

    def __init__(self, recorder: Recorder) -> None:
        elsewhere = recorder.used.keys() - set(recorder.arguments)
        self._captures = {ref: f"capture{index}" for index, ref in enumerate(elsewhere)}
        with no_mesh.activate():
            self._lines = recorder.lines(self._captures)

    def difference(self, now: Recorder) -> str:
        """How another recording differs; empty if it does not."""
        with no_mesh.activate():
            lines = now.lines(self._captures)
        return "\n".join(
            difflib.unified_diff(self._lines, lines, "recorded", "now", lineterm="", n=2)
        )


def _shown_call(engine: Engine, instruction: Instruction, name: Callable[[int], str]) -> str:
    what = instruction[0]
    if what >= 0:
        _, _, inputs, _, numbers = instruction
        template = engine.described[what]
        return call_text(
            template.path, template, lambda index: name(inputs[index]),
            lambda index: repr(numbers[index]), _shown,
        )  # fmt: skip
    use = uses(engine.described, instruction)
    return (
        f"{_operation(instruction)}({', '.join([*map(name, use.inputs), *map(_shown, use.rest)])})"
    )


def _operation(instruction: Instruction) -> str:
    if instruction[0] == CALL:
        function = instruction[2].function
        return function if isinstance(function, str) else f"a function of {len(function)} bytes"
    return "constant" if instruction[0] == CONSTANT else str(instruction[2])


def _shown(value: Any) -> str:
    text = repr(value.tolist() if hasattr(value, "tolist") else value)
    return text if len(text) < _SHOWN else f"{text[:_SHOWN]}... (#{hash(text) & 0xFFFFFF:x})"


def _where(ranks: Ranks) -> str:
    shown = ", ".join(map(str, ranks.ranks[:_RANKS])) + (
        ", ..." if len(ranks.ranks) > _RANKS else ""
    )
    return f"ranks {shown} of stream {ranks.stream}"
