"""Functions of autograd with both bodies on the ranks: `remote_autograd_function`.

Forward and backward run there as they are written, and what one keeps for the other stays there, in
an opaque object. What comes out the ranks tell at the first call with arguments of a kind; later
calls go by that.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from ..functions.opaque import OpaqueRef
from ..functions.remote_functions import Remote
from ..tensors.tensor import Tensor
from ..trees import filled


class RemoteAutogradFunction:
    """Made by `remote_autograd_function`; ``apply`` is called as that of the original."""

    def __init__(self, function: type[torch.autograd.Function]) -> None:
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self._forward: Remote[..., Any] = Remote(functools.partial(_forward, function), None)
        self._backward: Remote[..., Any] = Remote(functools.partial(_backward, function), None)

    def apply(self, *args: Any) -> Any:
        """Run the forward pass on the mesh of the tensors among the arguments.

        Args:
            *args: Those of the original; gradients are those that its backward pass gives for the
                same positions.

        Returns:
            The result of the forward pass: a tensor or a tuple, with None for values that are no
            tensors.
        """
        made: list[Any] = []
        tensors = _Node.apply(self._forward, self._backward, made, *args)
        leaves, tree = made
        return filled(leaves, tree, Tensor, tensors)


def remote_autograd_function(function: type[torch.autograd.Function]) -> RemoteAutogradFunction:
    """Let the bodies of a ``torch.autograd.Function`` run on the ranks. May decorate its class.

    Args:
        function: Its ``ctx`` may save tensors, have attributes and ask ``needs_input_grad``.

    Returns:
        The function in the place of the class; use its ``apply``.

    Raises:
        TypeError: It is no such class.
    """
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        raise TypeError(
            "remote_autograd_function takes a subclass of torch.autograd.Function, got"
            f" {function!r}"
        )
    return RemoteAutogradFunction(function)


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, forward: Any, backward: Any, made: list[Any], *args: Any) -> Any:
        needs = tuple(ctx.needs_input_grad[3:])
        context, result = forward(args, needs)
        leaves, tree = pytree.tree_flatten(result)
        made[:] = leaves, tree
        ctx.backward_there, ctx.count = backward, len(args)
        ctx.kind = (
            [(tuple(arg.shape), arg.dtype) if isinstance(arg, Tensor) else arg for arg in args],
            needs,
        )
        ctx.places = [index for index, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        ctx.outputs = len(leaves)
        ctx.save_for_backward(*pytree.tree_leaves(context))
        ctx.context_tree = pytree.tree_structure(context)
        return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        context = pytree.tree_unflatten(list(ctx.saved_tensors), ctx.context_tree)
        given: list[Any] = [None] * ctx.outputs
        for place, grad in zip(ctx.places, grads, strict=True):
            given[place] = grad
        found = ctx.backward_there(context, given, ctx.kind)
        if len(found) != ctx.count:
            raise RuntimeError(
                f"backward gave {len(found)} gradients for the {ctx.count} arguments of forward"
            )
        return None, None, None, *found


# on the ranks


class _Context:
    """The ``ctx`` of forward and backward; attributes may be set."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Nothing: gradients that arrive for them are for the backward pass to ignore."""

    def set_materialize_grads(self, value: bool) -> None:
        """Nothing: gradients are always tensors here."""

    def mark_dirty(self, *tensors: Any) -> None:
        raise NotImplementedError(
            "mark_dirty: a remote autograd function can't write to its arguments; return copies"
        )


def _forward(
    function: Any, args: tuple[Any, ...], needs: tuple[bool, ...]
) -> tuple[OpaqueRef, Any]:
    context = _Context(needs)
    with torch.no_grad():
        if function.setup_context is torch.autograd.Function.setup_context:
            result = function.forward(context, *args)
        else:
            result = function.forward(*args)
            function.setup_context(context, args, result)
    return OpaqueRef(context), result


def _backward(function: Any, ref: OpaqueRef, grads: list[Any], kind: Any) -> list[Any]:
    """`kind` is not for here: what the results look like depends on it."""
    with torch.no_grad():
        found = function.backward(ref.value, *grads)
    return list(found) if isinstance(found, tuple) else [found]
