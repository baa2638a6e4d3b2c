"""The cost of one operation of torch: its results, and the work in them.

Found by running it on fake tensors, once per template. On a GPU the time is that of a *roofline*:
work takes as long as the slower of what it needs, arithmetic and memory (Williams, Waterman and
Patterson, "Roofline", 2009); a core of a CPU has to do one after the other.
`torch.utils.flop_counter` counts the floating-point operations of matrix products and their kin;
others are not worth counting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import flop_registry

from monarch.tensor_engine import no_mesh
from monarch.tensor_engine.instructions import Definition, Input, Number
from monarch.tensor_engine.planning import fakes
from monarch.tensor_engine.planning.fakes import Meta
from monarch.tensor_engine.planning.plans import operator
from monarch.tensor_engine.planning.settings import scope
from monarch.tensor_engine.worker.functions import find

from .machine import Machine

_EMPTY = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
_ONLY_WRITES = (
    "copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_",
)  # fmt: skip
# reads as much as it writes, not all
_PICKS = ("embedding", "index_select", "gather", "index", "take")
_PLACES = (
    "index_put_", "_index_put_impl_", "scatter_", "scatter_add_", "index_add_", "index_copy_",
)  # fmt: skip
_FUNCTIONS = (
    "exp", "expm1", "log", "log1p", "log2", "tanh", "sigmoid", "gelu", "erf", "silu", "mish", "softplus", "sin", "cos", "tan",
    "atan2", "pow", "_softmax", "_log_softmax", "logsumexp", "rsqrt", "elu",
)  # fmt: skip
FUNCTION_WEIGHT = 16  # simple operations that such a function counts as
_RANDOM_WEIGHT = 32


class Work(NamedTuple):
    """The work of an operation.

    Attributes:
        flops: Floating-point operations of matrix products.
        dtype: Theirs.
        vector: Other arithmetic, in simple operations.
        bytes: Read and written.
        fresh: Bytes of new tensors.
        pieces: How many tensors are made or changed, one after the other where the device has no
            kernel for them all.
    """

    flops: float = 0.0
    dtype: str = "float32"
    vector: float = 0.0
    bytes: float = 0.0
    fresh: float = 0.0
    pieces: int = 0

    def seconds(self, machine: Machine) -> float:
        """The seconds on the device, without the overhead of starting it."""
        if not self.pieces:
            return 0.0
        arithmetic = self.flops / machine.flops_of(self.dtype) + self.vector / machine.vector
        kernels = 1 if machine.asynchronous else self.pieces
        memory = self.bytes / machine.bandwidth + self.fresh * machine.fresh
        both = max(arithmetic, memory) if machine.asynchronous else arithmetic + memory
        return kernels * machine.kernel + both


class Result(NamedTuple):
    """A tensor that an operation makes.

    Attributes:
        meta: What it looks like.
        shares: Position of the input with which it shares memory, or None.
        bytes: Of its storage.
    """

    meta: Meta
    shares: int | None
    bytes: int


class OperationTemplate(Definition):
    """An operation with places for what differs from call to call."""

    @property
    def name(self) -> str:
        """Without namespace and overload."""
        return self.path.partition("::")[2].partition(".")[0]


class Effect(NamedTuple):
    """The effect of an operation.

    Attributes:
        results: One per leaf of what it returns; None for a leaf that is an input or no tensor.
        changed: What inputs look like afterwards, by position, where that changes.
        work: What it takes.
    """

    results: tuple[Result | None, ...]
    changed: tuple[tuple[int, Meta], ...]
    work: Work


def effect_of(template: OperationTemplate, metas: Sequence[Meta], numbers: Sequence[Any]) -> Effect:
    """Run a template, as a worker would, but on fakes.

    Args:
        template: The template.
        metas: Of the inputs.
        numbers: The numbers.
    """
    func = find(template.path)
    with no_mesh.activate(), fakes.faking():
        inputs = [meta.fake() for meta in metas]
        before = [fakes.storage_of(fake) for fake in inputs]

        def place(arg: Any) -> Any:
            if type(arg) is Input:
                return inputs[arg.position]
            if type(arg) is Number:
                return numbers[arg.position]
            return type(arg)(map(place, arg)) if type(arg) in (list, tuple) else arg

        placed = place(template.args)
        named = {name: place(arg) for name, arg in template.kwargs.items()}
        result = scope.around(func, template.settings, shared=True)(*placed, **named)
        leaves = _leaves(result)
        results = tuple(_result(leaf, inputs, before) for leaf in leaves)
        changed = tuple(
            (index, meta)
            for index, fake in enumerate(inputs)
            if (meta := fakes.meta_of(fake)) is not metas[index]
        )
        made = [
            leaf
            for leaf, each in zip(leaves, results, strict=True)
            if each is not None and each.shares is None
        ]
        work = _work(
            func, placed, named, result, inputs, made, [inputs[index] for index in template.writes]
        )
        return Effect(results, changed, work)


def touching(metas: Sequence[Meta], made: Sequence[Meta]) -> Work:
    """The least cost of a function that nothing is known about.

    It reads all that it gets, and writes all that it makes.
    """
    size, new = sum(map(bytes_of, (*metas, *made))), sum(map(bytes_of, made))
    return Work(bytes=size, fresh=new, pieces=1)


def bytes_of(meta: Meta) -> int:
    """The bytes of a tensor's elements; expanded dimensions count once."""
    count = 1
    for length, stride in zip(meta.shape, meta.stride, strict=True):
        count *= length if stride or not length else 1
    return count * meta.dtype.itemsize


def _result(leaf: Any, inputs: Sequence[Any], before: Sequence[int]) -> Result | None:
    if not isinstance(leaf, torch.Tensor) or any(leaf is fake for fake in inputs):
        return None
    storage = fakes.storage_of(leaf)
    shares = before.index(storage) if storage in before else None
    return Result(fakes.meta_of(leaf), shares, leaf.untyped_storage().nbytes())


def _leaves(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [leaf for each in result for leaf in _leaves(each)]
    return [result]


def _work(
    func: Any, args: Any, kwargs: Any, result: Any, inputs: Any, made: list[Any], written: list[Any]
) -> Work:
    name = func._schema.name.partition("::")[2]
    pieces = len(made) + len(written)
    if not pieces or name in _EMPTY:
        return Work(pieces=1 if pieces else 0)
    fresh = sum(map(_touched, made))
    reads, writes = sum(map(_touched, inputs)), fresh + sum(map(_touched, written))
    if name in _ONLY_WRITES:
        reads -= sum(map(_touched, written))
    elif name in _PICKS:
        reads = writes + sum(
            _touched(tensor) for tensor in inputs if not tensor.dtype.is_floating_point
        )
    elif name in _PLACES:
        others = reads - sum(map(_touched, written))
        reads, writes = 2 * others, others
    formula: Callable[..., Any] | None = flop_registry.get(func._overloadpacket)
    if formula is not None:
        flops = float(formula(*args, **kwargs, out_val=result))
        return Work(
            flops, str(inputs[0].dtype).partition(".")[2], 0.0, reads + writes, fresh, pieces
        )
    elements = max(tensor.numel() for tensor in (*inputs, *made))
    return Work(0.0, "float32", _weight(func, name) * elements, reads + writes, fresh, pieces)


def _weight(func: Any, name: str) -> int:
    if operator(func).random:
        return _RANDOM_WEIGHT
    return FUNCTION_WEIGHT if name.rstrip("_").removesuffix("_backward") in _FUNCTIONS else 1


def _touched(tensor: Any) -> int:
    return bytes_of(fakes.meta_of(tensor))
