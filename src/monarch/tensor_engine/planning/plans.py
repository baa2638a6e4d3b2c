"""Plans of operations, cached: the shapes of results, shared memory, written arguments.

A plan is made by running the operation on fakes. It holds for every call with the same function,
the same metadata of tensors and the same other arguments; numbers that cannot change a shape (the
2.5 in ``x * 2.5``) do not count.
"""

from __future__ import annotations

import sys
from collections.abc import Container, Sequence
from math import prod
from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._ops import HigherOrderOperator

from .. import devices
from ..instructions import Input, Layout, Number, leaves
from . import fakes
from .fakes import Meta

NUMBERS = frozenset((int, float, complex))
"""The types of numbers of which the type alone may matter."""
# numbers are only filled in
_VALUE_ONLY = ("aten::scalar_tensor", "aten::full", "aten::full_like", "aten::new_full")
_INSTEAD = {
    "cond": ", as only ranks know the condition; torch.where(condition, a, b) can",
    "flex_attention": "; torch.nn.functional.scaled_dot_product_attention(attn_mask=...) can",
}
_MARGIN = "aten::multilabel_margin_loss_forward"
_SHAPING = ("aten::arange", "aten::range")  # numbers are shapes, even where there is an ``out=``
_UNSPECIFIED = ("aten::empty", "aten::new_empty")  # their results have unknown content


class Operator:
    """The schema of an operator, as far as plans need it.

    Attributes:
        free: Positions and names of number arguments that do not affect shapes or types of results.
        free_lists: The same for lists of numbers.
        without_tensors: Whether that holds for calls without tensors, too.
        writes: Positions of arguments that are written to.
        keeps: Whether its result is its argument.
        random: Whether it draws random numbers.
        known: Whether its result is a function of its arguments.
        views: Whether its results share the memory of its first argument, and do not overwrite it.
    """

    __slots__ = (
        "free", "free_lists", "func", "keeps", "known", "name", "path", "random", "views",
        "without_tensors", "writes",
    )  # fmt: skip

    def __init__(self, func: Any) -> None:
        if isinstance(func, HigherOrderOperator):
            raise NotImplementedError(
                f"{func.name()}: what torch does by tracing functions can't be done on distributed"
                f" tensors{_INSTEAD.get(func.name(), '')}. Call it in a remote function:"
                " @remote(propagate=...)"
            )
        schema = func._schema
        self.func = func  # keeps it, so that no other gets its id
        self.name = schema.name
        self.path = _path_of_custom(schema.name) or f"{schema.name}.{func._overloadname}"
        arguments = () if schema.name in _SHAPING else schema.arguments
        kinds = {
            key: _kind(argument)
            for index, argument in enumerate(arguments)
            for key in (index, argument.name)
        }
        self.free: frozenset[Any] = frozenset(
            key for key, kind in kinds.items() if kind == "number"
        )
        self.free_lists: frozenset[Any] = frozenset(
            key for key, kind in kinds.items() if kind == "numbers"
        )
        self.without_tensors = schema.name in _VALUE_ONLY
        self.writes = frozenset(
            key
            for index, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
            for key in (index, argument.name)
        )
        self.views = any(
            made.alias_info is not None and not made.alias_info.is_write for made in schema.returns
        )
        tags = getattr(func, "tags", ())
        self.random = torch.Tag.nondeterministic_seeded in tags
        self.keeps = self.name in ("aten::detach", "aten::alias", "aten::lift_fresh")
        self.known = not self.random and not schema.name.startswith(_UNSPECIFIED)


def _path_of_custom(name: str) -> str | None:
    """How ranks find an operator that a Python module has made, so that they import the module.

    None for other operators.
    """
    made = None if name.startswith("aten::") else OPDEFS.get(name)
    function = getattr(made, "_init_fn", None)
    module = sys.modules.get(getattr(function, "__module__", ""))
    if made is None or function is None or module is None or module.__name__ == "__main__":
        return None
    return (
        f"{module.__name__}.{function.__name__}._opoverload"
        if vars(module).get(function.__name__) is made
        else None
    )


def _kind(argument: Any) -> str:
    """Return the kind of an argument of which only the type matters.

    It is a number, a list of numbers, or neither.
    """
    found = argument.type
    if isinstance(found, torch.OptionalType):
        found = found.getElementType()
    if isinstance(found, (torch.NumberType, torch.FloatType, torch.TensorType)):
        return "number"
    if isinstance(found, torch.ListType) and isinstance(found.getElementType(), torch.NumberType):
        return "numbers"  # lists of floats are not: shapes may be scaled by them
    return ""


_operators: dict[int, Operator] = {}


def operator(func: Any) -> Operator:
    """Return the `Operator` of `func`, an ``OpOverload``.

    (By its id, as torch has its hash computed in Python.)
    """
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
        self.geometry = meta.geometry


class Same:
    """A result that is one of the inputs."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index


class Plan:
    """The effect of an operation, known before it runs.

    Attributes:
        result: `Output`, `Same` or a constant; or a list or tuple of these, as returned.
        outputs: The new tensors in it; in order.
        only: The one `Output`, where the result is nothing else.
        writes: Positions of inputs that are written to.
        moved: Positions of inputs that change their geometry in place, and their new geometry.
        known: Whether the controller can compute it, if it knows the inputs.
        template: Its number on the workers of the engine.
        constant: Nothing needs to be done by workers.
        same: Whether an argument is in the result.
    """

    __slots__ = (
        "constant", "known", "moved", "only", "outputs", "result", "same", "template", "writes"
    )  # fmt: skip

    def __init__(
        self,
        result: Any,
        writes: tuple[int, ...],
        known: bool,
        moved: tuple[tuple[int, Meta], ...] = (),
    ) -> None:
        self.result = result
        self.writes = writes
        self.moved = moved
        self.outputs = [leaf for leaf in leaves(result) if isinstance(leaf, Output)]
        self.only = result if isinstance(result, Output) else None
        self.constant = not self.outputs and not writes
        self.same = any(isinstance(leaf, Same) for leaf in leaves(result))
        metas = [output.meta for output in self.outputs] + [meta for _, meta in moved]
        self.known = (
            known and (bool(writes) or self.only is not None) and all(map(_is_scalar, metas))
        )
        self.template = -1

    @property
    def layouts(self) -> tuple[Layout | None, ...]:
        """How the ranks lay out each leaf of the result; None for results without new memory."""
        return tuple(
            [
                Layout(*leaf.geometry, leaf.meta.dtype)
                if isinstance(leaf, Output) and leaf.shares is None
                else None
                for leaf in leaves(self.result)
            ]
        )

    def ids(self, new: Sequence[int]) -> Any:
        """The outputs of an instruction.

        They are ids in the order of the leaves of the result, 0 for leaves that are not new.
        """
        if self.only is not None:
            return new[0]
        if not new:
            return ()
        ids = iter(new)
        return tuple(next(ids) if isinstance(leaf, Output) else 0 for leaf in leaves(self.result))


def make_plan(
    operator: Operator, args: Any, kwargs: Any, metas: Sequence[Meta], place: Any
) -> Plan:
    """Run an operator on fakes.

    Args:
        operator: The operator.
        args: Its arguments.
        kwargs: Its arguments by name.
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
            # a dozen lines of torch that lead to a shape say nothing about it
            raise error.with_traceback(None) from None
        if operator.name == _MARGIN and inputs[0].dim() < 2:  # of which torch says (1,)
            result = result[0].reshape(()), result[1]
        written = _written(operator, fake_args, fake_kwargs, inputs)
        known = operator.known and all(prod(meta.shape) == 1 for meta in metas)
        return _plan(result, inputs, written, range(len(inputs)), known, _moved(inputs, metas))


def plan_of(result: Any, inputs: Sequence[Any], written: tuple[int, ...]) -> Plan:
    """The plan of a function with known writes and known results, as fakes.

    A result that is an input which was not written to says what it looks like, no more.
    """
    return _plan(result, inputs, written, written, known=False, moved=())


def _plan(
    result: Any,
    inputs: Sequence[Any],
    written: tuple[int, ...],
    kept: Container[int],
    known: bool,
    moved: tuple[tuple[int, Meta], ...],
) -> Plan:
    storages = {fakes.storage_of(fake): index for index, fake in enumerate(inputs)}

    def describe(leaf: Any) -> Any:
        if isinstance(leaf, (list, tuple)):
            return (
                type(leaf)(map(describe, leaf))
                if type(leaf) in (list, tuple)
                else tuple(map(describe, leaf))
            )
        if not isinstance(leaf, torch.Tensor):
            return leaf
        for index, fake in enumerate(inputs):
            if leaf is fake:
                return Same(index) if index in kept else Output(fakes.meta_of(leaf), None)
        return Output(fakes.meta_of(leaf), storages.get(fakes.storage_of(leaf)))

    return Plan(describe(result), written, known, moved)


def _written(operator: Operator, args: Any, kwargs: Any, inputs: Sequence[Any]) -> tuple[int, ...]:
    if not operator.writes:
        return ()
    given = [*enumerate(args), *kwargs.items()]
    tensors = [leaf for key, arg in given if key in operator.writes for leaf in leaves(arg)]
    return tuple(
        index for index, fake in enumerate(inputs) if any(fake is tensor for tensor in tensors)
    )


def _moved(inputs: Sequence[Any], metas: Sequence[Meta]) -> tuple[tuple[int, Meta], ...]:
    after = [fakes.meta_of(fake) for fake in inputs]
    return tuple(
        (index, meta) for index, meta in enumerate(after) if meta.geometry != metas[index].geometry
    )


def template_arguments(
    operator: Operator, args: Any, kwargs: Any, place: Any, some_tensors: bool
) -> tuple[Any, Any]:
    """The arguments as a template has them: tensors, free numbers and generators are places."""
    free, free_lists = (
        (operator.free, operator.free_lists)
        if some_tensors or operator.without_tensors
        else ((), ())
    )
    count = 0

    def number(arg: Any) -> Any:
        nonlocal count
        if type(arg) not in NUMBERS:
            return arg
        count += 1
        return Number(count - 1)

    def given(key: Any, arg: Any) -> Any:
        if isinstance(arg, torch.Generator):
            return Number(-1)  # comes after the numbers
        if isinstance(arg, torch.device):
            return devices.of_rank(arg)
        if key in free:
            return number(arg)
        return list(map(number, arg)) if key in free_lists and type(arg) is list else arg

    args = [given(index, arg) for index, arg in enumerate(args)]
    kwargs = {name: given(name, arg) for name, arg in sorted(kwargs.items())}
    placed: tuple[Any, Any] = place((args, kwargs), Input)
    return placed


def _is_scalar(meta: Meta) -> bool:
    return prod(meta.shape) == 1 and meta.device.type == "cpu"
