"""Backward passes in pieces: each gradient when it is wanted, so that what follows from it can begin before the next.

``loss.backward()`` runs a graph to its end. `grad_generator` walks the same graph itself, node by node, and stops after each
gradient asked for: a program can reduce it over the mesh, or step its optimizer, before it asks for the next. Nodes are run
with the mesh and the stream of their gradient active, so that one graph may go over several of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils import _pytree as pytree

from .tensor import Tensor

Node = Any  # torch does not give its nodes a public type


def grad_generator(
    roots: torch.Tensor | Sequence[torch.Tensor | GradientEdge] = (),
    with_respect_to: Iterable[torch.Tensor | GradientEdge] = (),
    grad_roots: Sequence[torch.Tensor | None] = (),
) -> Iterator[torch.Tensor | None]:
    """The gradients of some roots, one after the other; each is computed when it is asked for, from what was computed so far.

    Ask in the order in which gradients become available, usually that of the parameters, reversed: see
    `gradient_execution_order`. It works on local tensors as well.

    Args:
        roots: What is derived: a tensor, or several, or gradient edges.
        with_respect_to: By what; for each there is one result, None if the roots do not depend on it.
        grad_roots: The gradient of each root; None, or nothing at all, stands for 1, for a root of one element.

    Raises:
        RuntimeError: A root requires no gradient, or has more than one element and no gradient in `grad_roots`.
    """
    graph = _Graph(_edges(roots))
    targets = [get_gradient_edge(each) if isinstance(each, torch.Tensor) else each for each in with_respect_to]
    graph.seed(_root_tensors(roots), grad_roots)
    return _generate(graph, targets)


def gradient_execution_order(
    roots: torch.Tensor | Sequence[torch.Tensor | GradientEdge], with_respect_to: Sequence[torch.Tensor | GradientEdge]
) -> list[int]:
    """The indices of `with_respect_to` in the order in which a backward pass reaches them."""
    graph = _Graph(_edges(roots))
    places = {node: place for place, node in enumerate(graph.order)}
    nodes = [get_gradient_edge(each).node if isinstance(each, torch.Tensor) else each.node for each in with_respect_to]
    return sorted(range(len(nodes)), key=lambda index: places.get(nodes[index], len(places)))


def grad_function(function: Callable[..., tuple[Any, Callable[..., Any]]]) -> Callable[..., Any]:
    """Make a function differentiable that brings its own backward pass.

    Args:
        function: Returns its result, a tensor or several in lists, tuples, dicts; and a function from the gradients of those
            tensors to the gradients of its arguments: one for each, or a single one.

    Returns:
        A function with the same arguments that returns the result.
    """

    def differentiable(*args: Any) -> Any:
        leaves, tree = pytree.tree_flatten(args)
        structure: list[Any] = []

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *leaves: Any) -> Any:
                result, ctx.backward_function = function(*pytree.tree_unflatten(list(leaves), tree))
                tensors, structure[:] = _flatten_tensors(result)
                return tuple(tensors)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                found = ctx.backward_function(*grads)
                given = list(found) if isinstance(found, (list, tuple)) else [found]
                flat = pytree.tree_leaves(given)
                if len(flat) != len(leaves):
                    raise ValueError(f"the backward pass gave {len(flat)} gradients for {len(leaves)} arguments")
                return tuple(flat)

        tensors = iter(Function.apply(*leaves))
        result_leaves, result_tree = structure
        return pytree.tree_unflatten(
            [next(tensors) if leaf is _A_TENSOR else leaf for leaf in result_leaves], result_tree
        )

    return differentiable


_A_TENSOR = object()


def _flatten_tensors(result: Any) -> tuple[list[torch.Tensor], list[Any]]:
    leaves, tree = pytree.tree_flatten(result)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return tensors, [[_A_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], tree]


def _generate(graph: _Graph, targets: list[GradientEdge]) -> Iterator[torch.Tensor | None]:
    for target in targets:
        with torch.no_grad():
            gradient = graph.gradient(target.node, target.output_nr)
        yield gradient


class _Graph:
    """A graph of autograd, and how far it has been run.

    Attributes:
        order: Its nodes, each after all that lead to it.
    """

    def __init__(self, roots: Sequence[GradientEdge]) -> None:
        self._roots = roots
        self.order = _topological_order([root.node for root in roots])
        self._place = {node: place for place, node in enumerate(self.order)}
        self._leading: dict[Node, set[Node]] = {}
        for node in self.order:
            for following, _ in node.next_functions:
                if following is not None:
                    self._leading.setdefault(following, set()).add(node)
        self._arrived: dict[Node, dict[int, torch.Tensor]] = {}
        self._done: set[Node] = set()

    def seed(self, tensors: Sequence[torch.Tensor | None], gradients: Sequence[torch.Tensor | None]) -> None:
        """Put in the gradients of the roots."""
        if gradients and len(gradients) != len(self._roots):
            raise RuntimeError(f"there are {len(self._roots)} roots and {len(gradients)} gradients for them")
        for index, root in enumerate(self._roots):
            gradient = gradients[index] if gradients else None
            if gradient is None:
                tensor = tensors[index]
                if tensor is None or tensor.numel() != 1:
                    raise RuntimeError("only a root of one element has an implicit gradient; give others in grad_roots")
                with torch.no_grad():
                    gradient = torch.ones_like(tensor)
            self._arrive(root.node, root.output_nr, gradient)

    def gradient(self, node: Node, number: int) -> torch.Tensor | None:
        """Run what leads to a node, as far as that has not been done."""
        for ancestor in self._ancestors(node):
            self._run(ancestor)
        return self._arrived.get(node, {}).get(number)

    def _ancestors(self, node: Node) -> list[Node]:
        found: set[Node] = set()
        todo = [node]
        while todo:
            for leading in self._leading.get(todo.pop(), ()):
                if leading not in found and leading not in self._done:
                    found.add(leading)
                    todo.append(leading)
        return sorted(found, key=self._place.__getitem__)

    def _run(self, node: Node) -> None:
        self._done.add(node)
        arrived = self._arrived.get(node)
        if not arrived:
            return
        inputs = [arrived.get(number) for number in range(len(node._input_metadata))]
        with _place_of(inputs):
            call = node.apply if isinstance(node, torch.autograd.function.BackwardCFunction) else node
            outputs = call(*inputs)
            outputs = outputs if isinstance(outputs, tuple) else (outputs,)
            for (following, number), gradient in zip(node.next_functions, outputs, strict=False):
                if following is not None and gradient is not None:
                    self._arrive(following, number, _fitted(gradient, following, number))

    def _arrive(self, node: Node, number: int, gradient: torch.Tensor) -> None:
        arrived = self._arrived.setdefault(node, {})
        arrived[number] = arrived[number] + gradient if number in arrived else gradient


def _topological_order(roots: Iterable[Node]) -> list[Node]:
    seen: set[Node] = set()
    finished: list[Node] = []
    todo: list[tuple[Node, bool]] = [(node, False) for node in roots]
    while todo:
        node, is_finished = todo.pop()
        if is_finished:
            finished.append(node)
        elif node not in seen:
            seen.add(node)
            todo.append((node, True))
            todo.extend((following, False) for following, _ in node.next_functions if following is not None)
    finished.reverse()
    return finished


def _fitted(gradient: torch.Tensor, node: Node, number: int) -> torch.Tensor:
    """A gradient in the shape and type of what it belongs to: formulas leave that to whoever runs the graph."""
    metadata = node._input_metadata[number]
    if gradient.shape != metadata.shape:
        gradient = gradient.sum_to_size(metadata.shape)
    return gradient if gradient.dtype == metadata.dtype else gradient.to(metadata.dtype)


@contextmanager
def _place_of(gradients: Iterable[torch.Tensor | None]) -> Iterator[None]:
    """The mesh and the stream of what flows back, active."""
    found = next((gradient for gradient in gradients if isinstance(gradient, Tensor)), None)
    if found is None:
        yield
        return
    with found.mesh.activate(), found.stream.activate():
        yield


def _edges(roots: Any) -> list[GradientEdge]:
    given = [roots] if isinstance(roots, torch.Tensor) else list(roots)
    return [get_gradient_edge(root) if isinstance(root, torch.Tensor) else root for root in given]


def _root_tensors(roots: Any) -> list[torch.Tensor | None]:
    given = [roots] if isinstance(roots, torch.Tensor) else list(roots)
    return [root if isinstance(root, torch.Tensor) else None for root in given]
