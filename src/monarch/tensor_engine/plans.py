"""What an operation does, found once and kept: the shapes of its results, what they share memory with, what it writes.

A plan is made by running the operation on fakes. It holds for every call with the same function, the same metadata of
tensors and the same other arguments; numbers that cannot change a shape (the 2.5 in ``x * 2.5``) do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from . import fakes
from .fakes import Meta
from .instructions import Input, Number, leaves

_NUMBERS = (int, float)  # as in `tensor.dispatch`: a complex one is part of the key
_VALUE_ONLY = ("aten::scalar_tensor", "aten::full", "aten::full_like", "aten::new_full")  # numbers are only filled in
_UNSPECIFIED = ("aten::empty", "aten::new_empty")  # what their results hold nobody knows


class Operator:
    """What the schema of an operator says.

    Attributes:
        free: Positions and names of arguments whose number is a value only.
        without_tensors: Whether that holds for calls without tensors, too.
        writes: Positions of arguments that are written to.
        moves: Whether it changes the geometry of its argument in place.
        keeps: Whether its result is its argument.
        random: Whether it draws random numbers.
        known: Whether its result is a function of its arguments.
    """

    __slots__ = ("free", "func", "keeps", "known", "moves", "name", "path", "random", "without_tensors", "writes")

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.func = func  # keeps it, so that no other gets its id
        self.name = schema.name
        self.path = f"{schema.name}.{func._overloadname}"
        free = [
            (index, argument.name)
            for index, argument in enumerate(schema.arguments)
            if isinstance(argument.type, (torch.NumberType, torch.FloatType, torch.TensorType))
        ]
        self.free: frozenset[Any] = frozenset(key for pair in free for key in pair)
        self.without_tensors = schema.name in _VALUE_ONLY
        self.writes = frozenset(
            key
            for index, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
            for key in (index, argument.name)
        )
        tags = getattr(func, "tags", ())
        self.moves = torch.Tag.inplace_view in tags
        self.random = torch.Tag.nondeterministic_seeded in tags
        self.keeps = self.name in ("aten::detach", "aten::alias", "aten::lift_fresh")
        self.known = not self.random and not schema.name.startswith(_UNSPECIFIED)


_operators: dict[int, Operator] = {}


def operator(func: Any) -> Operator:
    """What is known of `func`, an ``OpOverload``. (By its id, as torch has its hash computed in Python.)"""
    found = _operators.get(id(func))
    return found if found is not None else _operators.setdefault(id(func), Operator(func))


class Output:
    """One result that is a new tensor.

    Attributes:
        meta: What it looks like.
        shares: Position of the input that it shares memory with, or None.
    """

    __slots__ = ("geometry", "meta", "shares")

    def __init__(self, meta: Meta, shares: int | None) -> None:
        self.meta = meta
        self.shares = shares
        self.geometry = (meta.shape, meta.stride, meta.offset)


class Same:
    """A result that is one of the inputs."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Plan:
    """Attributes:
    result: `Output`, `Same` or a constant; or a list or tuple of such, as the operation returns it.
    outputs: The new tensors in it; in order.
    only: The one `Output`, where the result is nothing else.
    writes: Positions of inputs that are written to.
    known: Whether the controller can compute it, if it knows the inputs.
    template: Its number on the workers of the engine.
    constant: Nothing needs to be done by workers.
    """

    __slots__ = ("constant", "known", "only", "outputs", "result", "template", "writes")

    def __init__(self, result: Any, writes: tuple[int, ...], known: bool) -> None:
        self.result = result
        self.writes = writes
        self.outputs = [leaf for leaf in leaves(result) if isinstance(leaf, Output)]
        self.only = result if isinstance(result, Output) else None
        self.constant = not self.outputs and not writes
        self.known = known and (bool(writes) or self.only is not None) and all(map(_is_scalar, self.outputs))
        self.template = -1

    def ids(self, new: Sequence[int]) -> Any:
        """The outputs of an instruction: ids in the order of the leaves of the result, 0 for what is not new."""
        if self.only is not None:
            return new[0]
        if not new:
            return ()
        ids = iter(new)
        return tuple(next(ids) if isinstance(leaf, Output) else 0 for leaf in leaves(self.result))


def make_plan(operator: Operator, args: Any, kwargs: Any, metas: Sequence[Meta], place: Any) -> Plan:
    """Run an operator on fakes.

    Args:
        metas: Of the tensors among the arguments, in order.
        place: ``place(args, of)`` gives the arguments with ``of(index)`` for each tensor.

    Raises:
        Exception: What torch raises: shapes that do not fit, for one.
    """
    with fakes.faking():
        inputs = [meta.fake() for meta in metas]
        fake_args, fake_kwargs = place((args, kwargs), inputs.__getitem__)
        try:
            result = operator.func(*fake_args, **fake_kwargs)
        except RuntimeError as error:
            raise error.with_traceback(
                None
            ) from None  # a dozen lines of torch that lead to a shape say nothing about it
        written = _written(operator, fake_args, fake_kwargs, inputs)
        return _plan(result, inputs, written, operator.known and all(_numel(meta) == 1 for meta in metas))


def plan_of(result: Any, inputs: Sequence[Any], written: tuple[int, ...]) -> Plan:
    """The plan of something whose results, as fakes, and writes are known."""
    return _plan(result, inputs, written, known=False)


def _plan(result: Any, inputs: Sequence[Any], written: tuple[int, ...], known: bool) -> Plan:
    storages = {fakes.storage_of(fake): index for index, fake in enumerate(inputs)}

    def describe(leaf: Any) -> Any:
        if isinstance(leaf, (list, tuple)):
            return type(leaf)(map(describe, leaf)) if type(leaf) in (list, tuple) else tuple(map(describe, leaf))
        if not isinstance(leaf, torch.Tensor):
            return leaf
        for index, fake in enumerate(inputs):
            if leaf is fake:
                return Same(index)
        return Output(fakes.meta_of(leaf), storages.get(fakes.storage_of(leaf)))

    return Plan(describe(result), written, known)


def _written(operator: Operator, args: Any, kwargs: Any, inputs: Sequence[Any]) -> tuple[int, ...]:
    if not operator.writes:
        return ()
    given = [*enumerate(args), *kwargs.items()]
    tensors = [leaf for key, arg in given if key in operator.writes for leaf in leaves(arg)]
    return tuple(index for index, fake in enumerate(inputs) if any(fake is tensor for tensor in tensors))


def template_arguments(operator: Operator, args: Any, kwargs: Any, place: Any, some_tensors: bool) -> tuple[Any, Any]:
    """The arguments as a template has them: tensors and free numbers are places."""
    free = operator.free if some_tensors or operator.without_tensors else ()
    count = 0

    def number(arg: Any) -> Any:
        nonlocal count
        count += 1
        return Number(count - 1)

    args = [number(arg) if index in free and type(arg) in _NUMBERS else arg for index, arg in enumerate(args)]
    kwargs = {
        name: number(arg) if name in free and type(arg) in _NUMBERS else arg for name, arg in sorted(kwargs.items())
    }
    placed: tuple[Any, Any] = place((args, kwargs), Input)
    return placed


def _numel(meta: Meta) -> int:
    size = 1
    for length in meta.shape:
        size *= length
    return size


def _is_scalar(output: Output) -> bool:
    return _numel(output.meta) == 1 and output.meta.device.type == "cpu"
