"""The results of a function that runs on ranks, as they are known here.

Known are their shapes, and what of them shares memory with the arguments. Either a rule says so,
run on fake tensors, or each rank has told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..instructions import Expected, NewTensor, Told
from ..planning import fakes
from ..planning.plans import Output, Plan, Same, plan_of
from ..tensors import operand_checks
from ..tensors.activation import no_mesh
from ..tensors.rank_mesh import RankMesh
from ..tensors.tensor import Tensor, new_tensor, new_value, view_of
from ..tensors.tensor_base import TensorBase
from ..trees import filled
from .call_arguments import Arguments


def propagated(rule: Callable[..., Any], arguments: Arguments) -> tuple[Plan, Any]:
    """Apply a user's rule.

    It returns the plan, with the leaves of the result as a list, and their structure.
    """
    with no_mesh.activate(), fakes.faking():
        stand_ins = [tensor._value.meta.fake() for tensor in arguments.tensors]
        versions = [fake._version for fake in stand_ins]
        args, kwargs = filled(arguments.leaves, arguments.tree, Tensor, stand_ins)
        leaves, tree = pytree.tree_flatten(rule(*args, **kwargs))
        written = tuple(
            index for index, fake in enumerate(stand_ins) if fake._version != versions[index]
        )
        _check_shapes(arguments.tensors, stand_ins)
        return plan_of(leaves, stand_ins, written), tree


def _check_shapes(tensors: Sequence[TensorBase], stand_ins: Sequence[Any]) -> None:
    for tensor, fake in zip(tensors, stand_ins, strict=True):
        if fakes.meta_of(fake).geometry != tensor._value.meta.geometry:
            raise NotImplementedError(
                "a rule changes the shape or the strides of an argument in place, from"
                f" {tuple(tensor.shape)} to {tuple(fake.shape)}, and handles of it would not know:"
                " return a view of it"
            )


def told_by(name: str, told: dict[int, Told]) -> tuple[Plan, Any]:
    """The plan of a call, from the results of each rank.

    With it are the leaves of the result, as a list, and their structure.

    Raises:
        ValueError: The ranks do not agree.
    """
    first = next(iter(told.values()))
    if any(_kind(each) != _kind(first) for each in told.values()):
        shown = "\n".join(f"  rank {rank}: {_text(each)}" for rank, each in told.items())
        raise ValueError(
            f"{name} gave other results on one rank than on another, so they can't be"
            " distributed tensors; give all ranks the same shapes and types, or ask for values"
            f" with call():\n{shown}"
        )
    leaves = [
        Same(leaf) if isinstance(leaf, int) else _output(leaf) if leaf is not None else None
        for leaf in first.leaves
    ]
    written = sorted({index for each in told.values() for index in each.written})
    return Plan(leaves, tuple(written), known=False), pytree.tree_structure(first.skeleton)


def results(mesh: RankMesh, plan: Plan, tensors: Sequence[TensorBase]) -> list[Tensor]:
    """Make the handles of results that are about to be computed.

    What shares memory with an argument shares its storage here.
    """
    for index in plan.writes:
        operand_checks.check_write("a remote function", tensors[index])
    for index in plan.writes:
        torch.autograd.graph.increment_version(tensors[index])
    return [_made(mesh, output, tensors) for output in plan.outputs]


def _made(mesh: RankMesh, output: Output, tensors: Sequence[TensorBase]) -> Tensor:
    if output.shares is None:
        return new_tensor(mesh, output.meta)
    tensor = tensors[output.shares]
    return view_of(tensor, new_value(mesh, output.meta, tensor._value.storage))


def outputs_of(
    plan: Plan, made: Sequence[Tensor]
) -> tuple[tuple[int, ...], tuple[Expected | None, ...]]:
    """Return the id of each leaf of a result, 0 if it is not new, and its expected properties."""
    ids = plan.ids([tensor._value.id for tensor in made]) or (0,) * len(plan.result)
    expected = tuple(
        Expected(out.meta.shape, out.meta.dtype, out.shares) if isinstance(out, Output) else None
        for out in plan.result
    )
    return ids, expected


def built(plan: Plan, made: Sequence[Tensor], tensors: Sequence[TensorBase]) -> list[Any]:
    """The leaves of a result."""
    new = iter(made)

    def built_of(leaf: Any) -> Any:
        if isinstance(leaf, Output):
            return next(new)
        return tensors[leaf.index] if isinstance(leaf, Same) else leaf

    return [built_of(leaf) for leaf in plan.result]


def _kind(told: Told) -> Any:
    """Return the part of a report that must be equal on all ranks.

    Memory layout need not be: a part of a tensor may differ by rank.
    """
    leaves = [
        (leaf.shape, leaf.dtype, leaf.device.type, leaf.shares)
        if isinstance(leaf, NewTensor)
        else leaf
        for leaf in told.leaves
    ]
    return pytree.tree_structure(told.skeleton), leaves


def _text(told: Told) -> str:
    texts = []
    for leaf in told.leaves:
        if isinstance(leaf, NewTensor):
            text = f"a {leaf.dtype} tensor of shape {leaf.shape} on {leaf.device.type}"
            if leaf.shares is not None:
                text += f" that shares memory with tensor {leaf.shares} of its arguments"
            texts.append(text)
        else:
            texts.append("no tensor" if leaf is None else f"tensor {leaf} of its arguments")
    if pytree.tree_structure(told.skeleton).is_leaf():
        return ", ".join(texts)
    return f"{type(told.skeleton).__name__} of {', '.join(texts) or 'nothing'}"


def _output(leaf: NewTensor) -> Output:
    return Output(fakes.interned(tuple(leaf[:-1])), leaf.shares)
