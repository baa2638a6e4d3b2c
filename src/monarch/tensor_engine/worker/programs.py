"""Recorded programs on a worker: one function for each, made from its instructions.

A program becomes the text of a Python function that has its values as local variables: an operation
is one line, and costs no more than the call of torch's own function, without a look into any table.
Other instructions (functions of the user, moves between ranks) run as ever, by way of the
runner's slots, under the ids that were recorded.

An error ends the function; the number of its line tells which instruction failed. Of the remaining
instructions, only those are run that others wait for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import instructions
from .stream_state import StreamState
from .templates import EXACT, Template, call_text
from .worker_collectives import JOINT

_HEAD = "def program(runner, given):"


class _PoisonedError(Exception):
    """An instruction has left a failure."""

    def __init__(self, poison: instructions.Poison) -> None:
        self.poison = poison


class Compiled:
    """A program of one stream of this worker, ready to run."""

    def __init__(self, program: instructions.Program, templates: Mapping[int, Template]) -> None:
        self._program = program
        numbers = {each[0] for each in program.instructions if each[0] >= 0}
        self._templates = {number: templates[number] for number in numbers}
        self.compile(templates)

    def compile(self, latest: Mapping[int, Template]) -> None:
        """Make its function, of what the templates are now; some may be forgotten but here."""
        program, templates = self._program, self._templates
        templates.update({number: latest.get(number, each) for number, each in templates.items()})
        self._unseen = not all(template.seen for template in templates.values())
        self._names = [
            templates[each[0]].path if each[0] >= 0 else "" for each in program.instructions
        ]
        text = _Text(templates, program.references)
        text.unpack(program.formals)
        for index, instruction in enumerate(program.instructions):
            text.add(index, instruction)
        self._index_of_line = text.index_of_line
        names: dict[str, Any] = {"leaves": instructions.leaves, "run": _run, **text.constants}
        exec(text.finish(program.results), names)  # the text is all ours
        self._function: Callable[[StreamState, list[Any]], tuple[Any, ...]] = names["program"]

    def run(self, runner: StreamState, formals: Sequence[int], results: Sequence[int]) -> None:
        """Replay it on values of the runner.

        Args:
            runner: State of the stream on this rank.
            formals: Ids of the values that it starts with.
            results: Ids for those that it leaves.
        """
        slots = runner.slots
        given = [slots[ref] for ref in formals]
        poison, done = instructions.first_poison(given) if runner.poisoned else None, 0
        if poison is None:
            try:
                slots.update(zip(results, self._function(runner, given), strict=True))
                if self._unseen:
                    self.compile({})
                return
            except Exception as error:
                index = self._index_of(error)
                poison, done = self._poison_of(runner, index, error), index + 1
        self._do_joint_rest(runner, done, poison)
        runner.give_up((), results, (), poison)
        runner.poison_sharing([given[index] for index in self._program.writes], poison)

    def _index_of(self, error: Exception) -> int:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is not self._function.__code__:
            trace = trace.tb_next
        return self._index_of_line[trace.tb_lineno] if trace is not None else 0

    def _poison_of(self, runner: StreamState, index: int, error: Exception) -> instructions.Poison:
        if isinstance(error, _PoisonedError):
            return error.poison
        return runner.failed(
            self._program.instructions[index][1], self._names[index] or "a recorded program", error
        )

    def _do_joint_rest(self, runner: StreamState, first: int, poison: instructions.Poison) -> None:
        """Take part in what other ranks and streams wait for; all that they get is the failure."""
        runner.poisoned = True
        for instruction in self._program.instructions[first:]:
            if instruction[0] != instructions.MOVE or instruction[2] not in JOINT:
                continue
            use = instructions.uses(runner.shared.templates, instruction)
            ticket = instruction[3][0]
            if instruction[2] == "give_back" and ticket in runner.slots:
                runner.slots[ticket] = poison
            inputs = tuple(dict.fromkeys(use.inputs))
            _by_way_of_slots(runner, instruction, inputs + use.outputs, [poison] * len(inputs))


class _Text:
    """The text of a function, as it grows.

    Attributes:
        constants: What it refers to, by name.
        index_of_line: The index of the instruction of each line.
    """

    def __init__(self, templates: Mapping[int, Template], references: dict[int, int]) -> None:
        self._templates = templates
        self._references = references
        self._lines = [_HEAD]
        self._defined: set[int] = set()
        self._functions: dict[int, str] = {}
        self.constants: dict[str, Any] = {}
        self.index_of_line = [0, 0]  # lines are counted from 1

    def unpack(self, formals: Sequence[int]) -> None:
        if formals:
            self._add(0, f"({''.join(f'x{ref}, ' for ref in formals)}) = given")
        self._defined.update(formals)

    def add(self, index: int, instruction: instructions.Instruction) -> None:
        what = instruction[0]
        if what >= 0:
            self._add_operation(index, instruction)
        elif what == instructions.FREE:
            for ref in instruction[1]:
                if ref in self._defined:
                    self._add(index, f"x{ref} = None")
        elif what == instructions.CONSTANT:
            self._add(index, f"x{instruction[2]} = {self._constant(instruction[3])}.clone()")
            self._defined.add(instruction[2])
        else:
            self._add_other(index, instruction)

    def finish(self, results: Sequence[int]) -> str:
        self._lines.append(f" return ({''.join(f'x{ref}, ' for ref in results)})")
        return "\n".join(self._lines)

    def _add(self, index: int, line: str) -> None:
        self._lines.append(f" {line}")
        self.index_of_line.append(index)

    def _add_operation(self, index: int, instruction: instructions.Instruction) -> None:
        what, _, inputs, outputs, numbers = instruction
        template = self._templates[what]
        function = self._functions.get(what)
        if function is None:
            function = self._functions[what] = self._constant(template.function)
        call = call_text(
            function, template, lambda position: f"x{inputs[position]}",
            lambda position: self._number(numbers[position]), self._constant,
        )  # fmt: skip
        made = [outputs] if type(outputs) is int else list(outputs or ())
        self._defined.update(ref for ref in made if ref)
        if type(outputs) is int:
            self._add(index, f"x{outputs} = {call}")
        elif made:
            targets = "".join(f"x{ref}, " if ref else "_, " for ref in made)
            self._add(index, f"({targets}) = leaves({call})")
        else:
            self._add(index, call)

    def _add_other(self, index: int, instruction: instructions.Instruction) -> None:
        inputs, outputs, *_ = instructions.uses(self._templates, instruction)
        names = {ref: self._references.get(ref, ref) for ref in inputs}
        inputs = tuple(ref for ref, name in names.items() if name in self._defined)
        ids = inputs + outputs
        self._defined.update(outputs)
        targets = "".join(f"x{names.get(ref, ref)}, " for ref in ids)
        given = "".join(f"x{names[ref]}, " for ref in inputs)
        left = f"({targets}) = " if ids else ""
        self._add(
            index,
            f"{left}run(runner, {self._constant(instruction)}, {self._constant(ids)}, ({given}))",
        )

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def _number(self, number: Any) -> str:
        exact = type(number) in EXACT or (type(number) is float and math.isfinite(number))
        return repr(number) if exact else self._constant(number)


def _run(
    runner: StreamState,
    instruction: instructions.Instruction,
    ids: Sequence[int],
    given: Sequence[Any],
) -> list[Any]:
    """Run an instruction by way of the slots.

    It returns the values with these ids, the first of which were given.
    """
    values = _by_way_of_slots(runner, instruction, ids, given)
    if runner.poisoned and (poison := instructions.first_poison(values)) is not None:
        raise _PoisonedError(poison)
    return values


def _by_way_of_slots(
    runner: StreamState,
    instruction: instructions.Instruction,
    ids: Sequence[int],
    given: Sequence[Any],
) -> list[Any]:
    slots = runner.slots
    # the recorded values may still be in these slots
    before = {ref: slots[ref] for ref in ids if ref in slots}
    lent = dict(zip(ids, given, strict=False))
    slots.update(lent)
    try:
        runner.control(instruction)
    finally:
        values = {ref: slots.pop(ref, None) for ref in ids}
        slots.update(
            {ref: values[ref] if value is lent.get(ref) else value for ref, value in before.items()}
        )
    return list(values.values())
