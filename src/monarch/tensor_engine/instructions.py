"""The language that a controller speaks to its workers.

A *batch* is a list of instructions; an instruction is a tuple that begins with its opcode.
What happens most, an operation of torch that was seen before, is nothing but numbers: a *template*
(function and constant arguments) is defined once, and from then on
``(template, site, inputs, outputs, numbers)`` runs it. Nothing here imports torch.

===========  ========================================  ==============================================================
first        the rest                                  means
===========  ========================================  ==============================================================
>= 0         site, inputs, outputs, numbers            run that template
FREE         ids                                       forget these values
DEFINE       template, `Definition`                    define a template
FORGET       template                                  forget all templates with smaller numbers
PROGRAM      number, `Program` or None                 define a program, or forget it
END          stream                                    end a stream, when it has done what came before
REPLAY       site, number, formals, results            run it: on these values, leaving its results under these ids
SPREAD                                                 from now on each stream has a thread of its own
CONSTANT     site, output, value                       a value that the controller had
CALL         site, `Call`                              run a function of the user
UNPACK       value, outputs                            the results of a call, kept together so far, each under its id
MOVE         site, name, args                          run a function of `worker_collectives`: what moves data, and the like
===========  ========================================  ==============================================================

Instructions belong to a *stream*; a message has ``(stream, batch)`` pairs. Those of one stream run
in order. `ALL` is no stream: a definition sent there precedes all later instructions of any stream.

A *site* is the controller's number for the stack that issued the instruction; it comes back with an
error.

What an instruction reads, makes and writes to, `uses` says, for both ends. What it does is the
business of `runner` and `worker_collectives` on workers, and of the simulator's model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

FREE = -1
DEFINE = -2
CONSTANT = -3
CALL = -4
MOVE = -5
UNPACK = -6
FORGET = -7
SPREAD = -8
PROGRAM = -9
REPLAY = -10
END = -11

MAIN = 0
"""The stream of programs that use no other."""
ALL = -1
"""In place of a stream: for all of them."""

SMALL = 64 * 1024
"""Bytes of a constant; less is copied, rather than held on to where it lies."""

Instruction = tuple[Any, ...]


class Input(NamedTuple):
    """Placeholder in the arguments of a template: the input at this position."""

    position: int


class Number(NamedTuple):
    """Placeholder in the arguments of a template: the number at this position.

    The last may be a generator.
    """

    position: int


class Layout(NamedTuple):
    """The place of each element of a tensor in its memory, as the program takes it to be."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: Any

    @property
    def reach(self) -> int:
        """How many elements the memory has, at least."""
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.stride, strict=True)
        return self.offset + 1 + sum((length - 1) * step for length, step in steps)


class Definition(NamedTuple):
    """An operation with `Input` and `Number` in the places of what differs from call to call.

    Attributes:
        path: Its name, by which ranks find it.
        args: Its arguments.
        kwargs: Those by name.
        writes: Positions of inputs that it writes to.
        settings: Flags of torch as they were when it was issued: see `settings`.
        layouts: Of each leaf of the result; None for results without new memory.
    """

    path: str
    args: Any
    kwargs: Any
    writes: tuple[int, ...]
    settings: tuple[tuple[str, Any], ...] = ()
    layouts: tuple[Layout | None, ...] = ()


class Expected(NamedTuple):
    """The controller's expectation of a result.

    A worker checks shape and type where a user's rule has given them.

    Attributes:
        shares: Position of the input with which it shares memory, or None.
    """

    shape: tuple[int, ...]
    dtype: Any
    shares: int | None = None


class NewTensor(NamedTuple):
    """A worker's description of a new tensor that nothing else describes.

    Attributes:
        shares: Position of the input with which it shares memory, or None.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: Any
    device: Any
    shares: int | None


class Told(NamedTuple):
    """A worker's report on a call.

    Attributes:
        skeleton: The result, with None for each leaf.
        leaves: What each leaf is: a new tensor, the position of an input, or None for a leaf that
            is no tensor.
        written: Positions of the inputs that were written to.
    """

    skeleton: Any
    leaves: list[NewTensor | int | None]
    written: tuple[int, ...]


class Call(NamedTuple):
    """A function to be run on each rank.

    Attributes:
        function: How to find it: a dotted name, or a pickle of it.
        payload: Pickle and buffers of ``(args, kwargs)``, in which tensors are references.
        inputs: Ids of the tensors among the arguments.
        writes: Ids of those that the function changes.
        outputs: One per leaf of the result: an id, or 0 for a leaf that is no tensor. None where
            results do not matter.
        expected: What each output is.
    """

    function: Any
    payload: tuple[Any, Any]
    inputs: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    outputs: tuple[int, ...] | None = None
    expected: tuple[Expected | None, ...] = ()


class Program(NamedTuple):
    """Recorded instructions of one stream of some ranks, to be replayed with other values.

    Attributes:
        instructions: As they were issued when they were recorded.
        formals: The ids, then, of the values that it starts with.
        results: The ids, then, of the values that it leaves.
        writes: Positions of formals that it writes to.
        references: The ids of what pickled arguments, and calls with them, have other numbers for.
    """

    instructions: list[Instruction]
    formals: tuple[int, ...]
    results: tuple[int, ...]
    writes: tuple[int, ...]
    references: dict[int, int]


class Poison(NamedTuple):
    """Stands for a value that could not be computed.

    Attributes:
        site: Where the operation that failed was issued.
        rank: The rank in the engine on which it failed.
        function: What failed.
        error: The traceback of the worker, as text.
        number: Which failure of that rank it is: the same operation may fail again.
    """

    site: int
    rank: int
    function: str
    error: str
    number: int = 0


class Uses(NamedTuple):
    """The ids in an instruction.

    Attributes:
        inputs: What it reads.
        outputs: What it makes.
        rest: The other arguments, without tickets.
        writes: Those of the inputs that it writes to.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    rest: tuple[Any, ...] = ()
    writes: tuple[int, ...] = ()


def _reduction(reduction: Any) -> Uses:
    written = (reduction.write,) if reduction.write else ()
    return Uses((reduction.input, *written), (reduction.output,), reduction[3:], written)


MOVES: dict[str, Callable[..., Uses]] = {
    "accept": lambda ticket, value: Uses((), (value,)),
    "drop": lambda value: Uses((value,), (), (), (value,)),
    "give_back": lambda ticket, value: Uses((), ()),
    "offer": lambda ticket, value: Uses((value,), ()),
    "per_rank": lambda output, table: Uses((), (output,), (table,)),
    "random_state": lambda output, device: Uses((), (output,), (device,)),
    "receive": lambda output, look, number, ticket, link: Uses((), (output,), (look, number, link)),
    "reduce": _reduction,
    "seed": lambda number: Uses((), (), (number,)),
    "send": lambda source, look, number, ticket, link: Uses((source,), (), (look, number, link)),
    "set_random_state": lambda state, device: Uses((state,), (), (device,)),
    "take_back": lambda ticket, value, used: Uses((value,), (), (used,)),
    "transfer": lambda source, output, look, number: Uses((source,), (output,), (look, number)),
}
"""Of each function of `worker_collectives` that can be recorded, by its arguments."""


def uses(templates: Mapping[int, Any], instruction: Instruction) -> Uses:
    """The ids in an instruction.

    Args:
        templates: By number; each knows what it `writes` to.
        instruction: The instruction.

    Raises:
        NotImplementedError: It can't be recorded.
    """
    what = instruction[0]
    if what >= 0:
        _, _, inputs, outputs, _ = instruction
        made = (outputs,) if type(outputs) is int else tuple(ref for ref in outputs if ref)
        return Uses(inputs, made, (), tuple(inputs[index] for index in templates[what].writes))
    if what == CALL:
        call = instruction[2]
        made = tuple(ref for ref in call.outputs or () if ref)
        return Uses(call.inputs, made, (call.payload[0],), call.writes)
    if what == CONSTANT:
        return Uses((), (instruction[2],), (instruction[3],))
    if what == MOVE:
        if instruction[2] not in MOVES:
            raise NotImplementedError(
                "a move to another engine can't be recorded: call to_mesh outside of the recorded"
                " function"
            )
        return MOVES[instruction[2]](*instruction[3])
    return Uses((), ())


def first_poison(values: Iterable[Any]) -> Poison | None:
    """The first failure among values."""
    for value in values:
        if type(value) is Poison:
            return value
    return None


def leaves(result: Any) -> list[Any]:
    """The values in a result, which may be in lists and tuples.

    Both ends number the results of an operation by this order.
    """
    if isinstance(result, (list, tuple)):
        return [leaf for each in result for leaf in leaves(each)]
    return [result]
