"""Modules that live on the ranks, with graphs of their own: here they are one node of the graph.

The forward pass of the module runs with gradients on each rank, and what it leaves there, inputs,
outputs and the graph between them, is an opaque object. Autograd here keeps its handle as it keeps
saved tensors, and frees it as it frees those. The backward pass hands the gradients of the outputs
to the ranks, which derive their graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from ..tensors.tensor import Tensor
from ..trees import filled
from .opaque import OpaqueRef
from .opaque_object import OpaqueObject
from .remote_functions import Remote, call_on_shard_and_fetch, remote


class OpaqueModule(OpaqueObject):
    """A module on each rank. Gradients pass through it; what it computes with is its own business.

    Args:
        constructor: A class or function that each rank calls, or its dotted name:
            ``OpaqueModule("torch.nn.Linear", 3, 3)``.
        *args: Its arguments.
        **kwargs: As `args`.
    """

    def __init__(self, constructor: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(constructor, *args, **kwargs)
        self._known_parameters: dict[str, Tensor] | None = None
        self._forward_without_rule: Remote[..., Any] = Remote(_FORWARD, None)

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The parameters by name: distributed tensors that share memory with those of the ranks.

        They are always the same ones.

        The first time it waits for the ranks.

        Raises:
            RemoteException: The module could not be made.
        """
        if self._known_parameters is None:
            looks = call_on_shard_and_fetch(remote(_looks), self._object).get()
            handles = remote(_parameters, propagate=lambda ref: [look.fake() for look in looks])(
                self._object
            )
            for handle, look in zip(handles, looks, strict=True):
                handle.requires_grad_(look.requires_grad)
            self._known_parameters = {
                look.name: handle for look, handle in zip(looks, handles, strict=True)
            }
        return iter(self._known_parameters.items())

    def parameters(self) -> list[Tensor]:
        """See `named_parameters`."""
        return [parameter for _, parameter in self.named_parameters()]

    def __call__(
        self, *args: Any, propagator: Callable[..., Any] | None = None, **kwargs: Any
    ) -> Any:
        """Run the module.

        Args:
            *args: Its arguments.
            propagator: A rule for what comes out, as for `remote`: gets this handle, then the
                arguments. Without it, the first call with arguments of a kind waits for the ranks
                to tell.
            **kwargs: As `args`.

        Returns:
            What comes out; its floating-point tensors require gradients if an argument or a
            parameter does.
        """
        leaves, tree = pytree.tree_flatten((args, kwargs))
        inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        parameters = self.parameters()
        wanted = tuple(
            each.requires_grad and torch.is_grad_enabled() for each in (*inputs, *parameters)
        )
        if propagator is None:
            forward = self._forward_without_rule
        else:
            rule = propagator
            forward = Remote(
                _FORWARD,
                lambda ref, args, kwargs, wanted: (OpaqueRef(None), rule(self, *args, **kwargs)),
            )
        made = _Made()
        tensors = _Node.apply(
            self._object, forward, tree, leaves, wanted, made, *inputs, *parameters
        )
        found = iter(tensors)
        return pytree.tree_unflatten(
            [next(found) if leaf is _A_TENSOR else leaf for leaf in made.leaves], made.tree
        )


class _Made:
    """The structure of what came out, beside what autograd passes on."""

    leaves: list[Any]
    tree: Any


_A_TENSOR = object()


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        ref: OpaqueRef,
        forward: Any,
        tree: Any,
        leaves: list[Any],
        wanted: Any,
        made: _Made,
        *tensors: Any,
    ) -> Any:
        args, kwargs = pytree.tree_unflatten(leaves, tree)
        graph, result = forward(ref, args, kwargs, wanted)
        flat, made.tree = pytree.tree_flatten(result)
        made.leaves = [_A_TENSOR if isinstance(leaf, Tensor) else leaf for leaf in flat]
        ctx.wanted = wanted
        ctx.looks = [
            _Look("", tuple(each.shape), each.stride(), each.dtype, each.device, False)
            for each in tensors
        ]
        ctx.save_for_backward(*pytree.tree_leaves(graph))
        ctx.graph_tree = pytree.tree_structure(graph)
        ctx.set_materialize_grads(False)
        return tuple(leaf for leaf in flat if isinstance(leaf, Tensor))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        graph = pytree.tree_unflatten(list(ctx.saved_tensors), ctx.graph_tree)
        wanted = ctx.wanted
        looks = [look for look, is_wanted in zip(ctx.looks, wanted, strict=True) if is_wanted]
        derive: Remote[..., Any] = Remote(
            _BACKWARD, lambda graph, grads: [look.fake() for look in looks]
        )
        found = iter(derive(graph, list(grads)))
        return (
            None, None, None, None, None, None, *(next(found) if each else None for each in wanted),
        )  # fmt: skip


class _Look(NamedTuple):
    """The looks of a parameter: its shape, type and device."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool

    def fake(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=self.device)


# on the ranks

_FORWARD = f"{__name__}._forward"
_BACKWARD = f"{__name__}._backward"


class _Graph(NamedTuple):
    """A forward pass on one rank.

    Attributes:
        outputs: All tensors that came out, as the module gave them.
        sources: The inputs and parameters that gradients are wanted of.
    """

    outputs: list[torch.Tensor]
    sources: list[torch.Tensor]


def _looks(ref: OpaqueRef) -> list[_Look]:
    return [
        _Look(name, tuple(each.shape), each.stride(), each.dtype, each.device, each.requires_grad)
        for name, each in ref.value.named_parameters()
    ]


def _parameters(ref: OpaqueRef) -> list[torch.Tensor]:
    return [parameter.detach() for parameter in ref.value.parameters()]


def _forward(
    ref: OpaqueRef, args: Any, kwargs: Any, wanted: tuple[bool, ...]
) -> tuple[OpaqueRef, Any]:
    leaves, tree = pytree.tree_flatten((args, kwargs))
    inputs = [leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor)]
    for leaf, is_wanted in zip(inputs, wanted, strict=False):  # then come the parameters
        leaf.requires_grad_(is_wanted)
    args, kwargs = filled(leaves, tree, torch.Tensor, inputs)
    with torch.set_grad_enabled(any(wanted)):
        result = ref.value(*args, **kwargs)
    candidates = [*inputs, *ref.value.parameters()]
    sources = [each for each, is_wanted in zip(candidates, wanted, strict=True) if is_wanted]
    outputs = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    detached = pytree.tree_map_only(torch.Tensor, lambda each: each.detach(), result)
    return OpaqueRef(_Graph(outputs, sources) if sources else None), detached


def _backward(ref: OpaqueRef, grads: list[torch.Tensor | None]) -> list[torch.Tensor]:
    """The gradients of the sources, each in memory of its own, as torch adds them up.

    They are zeros for inputs that were not used.

    The graph is kept: that it is derived once only is ensured where its handle is kept.
    """
    graph: _Graph = ref.value
    derived = [
        (output, grad)
        for output, grad in zip(graph.outputs, grads, strict=True)
        if grad is not None and output.requires_grad
    ]
    kept = [source.grad for source in graph.sources]
    try:
        for source in graph.sources:
            source.grad = None
        if derived:
            outputs, given = zip(*derived, strict=True)
            torch.autograd.backward(outputs, given, retain_graph=True, inputs=graph.sources)
        return [
            torch.zeros_like(source) if source.grad is None else source.grad
            for source in graph.sources
        ]
    finally:
        for source, grad in zip(graph.sources, kept, strict=True):
            source.grad = grad
