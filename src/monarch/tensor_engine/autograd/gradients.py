"""Backward passes in pieces.

Each gradient is computed when it is wanted, so that what follows from it can begin before the next.

``loss.backward()`` runs a graph to its end. `grad_generator` walks the same graph itself, node by
node, and stops after each gradient asked for: a program can reduce it over the mesh, or step its
optimizer, before it asks for the next. Nodes are run with the mesh and the stream of their gradient
active, so that one graph may go over several of them.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.utils import _pytree as pytree

from ..tensors.activation import Activation, active_mesh, no_mesh
from ..tensors.streams import Stream, get_active_stream
from ..tensors.tensor import Tensor

Node = Any  # torch does not give its nodes a public type


def grad_generator(
    roots: torch.Tensor | GradientEdge | Sequence[torch.Tensor | GradientEdge] = (),
    with_respect_to: Iterable[torch.Tensor | GradientEdge] = (),
    grad_roots: Sequence[torch.Tensor | None] = (),
) -> Iterator[torch.Tensor | None]:
    """The gradients of some roots, one after the other.

    Each is computed when it is asked for, from those computed so far.

    Ask in the order in which gradients become available, usually that of the parameters, reversed:
    see `gradient_execution_order`. It works on local tensors as well. Hooks of tensors are called,
    as in a backward pass; those of nodes, such as full backward hooks of modules, are not. Tensors
    saved for a step of the backward pass are freed after the step, so a graph can be walked once.

    Args:
        roots: The tensor, tensors or gradient edges that are derived.
        with_respect_to: By what; for each there is one result, None if the roots do not depend on
            it.
        grad_roots: The gradient of each root; None, or nothing at all, stands for 1, for a root of
            one element.

    Raises:
        RuntimeError: A root requires no gradient, or has more than one element and no gradient in
            `grad_roots`.
    """
    targets = _edges(with_respect_to)
    graph = _Graph(_edges(roots), [target.node for target in targets])
    graph.seed(_root_tensors(roots), grad_roots)
    return _generate(graph, targets)


class GradientGenerator:
    """`grad_generator` under its older name, as an iterator.

    Args:
        roots, with_respect_to, grad_roots: As for `grad_generator`.
        with_respect_to: As for `grad_generator`.
        grad_roots: As for `grad_generator`.
        context_restorer: Without effect: each node runs with the mesh and the stream of its
            gradient in any case.
    """

    def __init__(
        self,
        roots: torch.Tensor | GradientEdge | Sequence[torch.Tensor | GradientEdge],
        with_respect_to: Iterable[torch.Tensor | GradientEdge],
        grad_roots: Sequence[torch.Tensor | None] = (),
        context_restorer: Callable[..., Any] | None = None,
    ) -> None:
        self._gradients = grad_generator(roots, with_respect_to, grad_roots)

    def __iter__(self) -> Iterator[torch.Tensor | None]:
        return self

    def __next__(self) -> torch.Tensor | None:
        return next(self._gradients)


def gradient_execution_order(
    roots: torch.Tensor | GradientEdge | Sequence[torch.Tensor | GradientEdge],
    with_respect_to: Sequence[torch.Tensor | GradientEdge],
) -> list[int]:
    """The indices of `with_respect_to` in the order in which a backward pass of torch reaches them.

    Args:
        roots: As for `grad_generator`.
        with_respect_to: As for `grad_generator`.
    """
    graph = _Graph(_edges(roots))
    places = {node: place for place, node in enumerate(graph.order)}
    nodes = [edge.node for edge in _edges(with_respect_to)]
    return sorted(range(len(nodes)), key=lambda index: places.get(nodes[index], len(places)))


def grad_function(function: Callable[..., tuple[Any, Callable[..., Any]]]) -> Callable[..., Any]:
    """Make a function differentiable that brings its own backward pass.

    Args:
        function: Returns its result, a tensor or several in lists, tuples, dicts; and a function
            from the gradients of those tensors to the gradients of its arguments: one for each, or
            a single one. It runs with the mesh active that was active at the call, and gets zeros
            for what nothing was derived from.

    Returns:
        A function with the same arguments that returns the result.
    """

    def differentiable(*args: Any) -> Any:
        leaves, tree = pytree.tree_flatten(args)
        structure: list[Any] = []

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *leaves: Any) -> Any:
                # torch would make zeros on this machine, not on the ranks
                ctx.set_materialize_grads(False)
                ctx.place = _Place(active_mesh(), get_active_stream())
                result, ctx.backward_function = function(*pytree.tree_unflatten(list(leaves), tree))
                tensors, structure[:] = _flatten_tensors(result)
                ctx.zeros = [
                    _Zeros(each.shape, each.dtype, each.device, _place_of([each]))
                    for each in tensors
                ]
                return tuple(tensors)

            @staticmethod
            def backward(ctx: Any, *grads: Any) -> Any:
                given = [
                    zeros.make() if grad is None else grad
                    for grad, zeros in zip(grads, ctx.zeros, strict=True)
                ]
                with ctx.place.activated():
                    found = ctx.backward_function(*given)
                flat = pytree.tree_leaves(
                    list(found) if isinstance(found, (list, tuple)) else [found]
                )
                if len(flat) != len(leaves):
                    raise ValueError(
                        f"the backward pass gave {len(flat)} gradients for {len(leaves)} arguments"
                    )
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
    return tensors, [
        [_A_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves],
        tree,
    ]


class _Place(NamedTuple):
    """A mesh, None for none, and a stream."""

    mesh: Any
    stream: Stream

    @contextmanager
    def activated(self) -> Iterator[None]:
        with Activation(self.mesh), self.stream.activate():
            yield


class _Zeros(NamedTuple):
    """The gradient of a result that nothing was derived from."""

    shape: torch.Size
    dtype: torch.dtype
    device: torch.device
    place: _Place

    def make(self) -> torch.Tensor:
        with self.place.activated():
            return torch.zeros(self.shape, dtype=self.dtype, device=self.device)


def _generate(graph: _Graph, targets: list[GradientEdge]) -> Iterator[torch.Tensor | None]:
    for target in targets:
        with torch.no_grad():
            gradient = graph.gradient(target.node, target.output_nr)
        yield gradient


class _Graph:
    """A graph of autograd, and how far it has been run.

    Calling a node of torch runs its formula and nothing else; what its engine does besides is done
    here: adding up incoming gradients, hooks of tensors, and freeing the tensors saved for the
    node.

    Attributes:
        order: Its nodes, as torch would run them.
    """

    def __init__(self, roots: Sequence[GradientEdge], targets: Iterable[Node] = ()) -> None:
        self._roots = roots
        self.order = _execution_order(root.node for root in roots)
        self._place = {node: place for place, node in enumerate(self.order)}
        self._leading: dict[Node, set[Node]] = {}
        for node in self.order:
            for following in _following(node):
                self._leading.setdefault(following, set()).add(node)
        self._targets = set(targets)
        self._arrived: dict[Node, dict[int, torch.Tensor]] = {}
        self._hooked: set[Node] = set()
        self._done: set[Node] = set()

    def seed(
        self, tensors: Sequence[torch.Tensor | None], gradients: Sequence[torch.Tensor | None]
    ) -> None:
        """Put in the gradients of the roots."""
        if gradients and len(gradients) != len(self._roots):
            raise RuntimeError(
                f"there are {len(self._roots)} roots and {len(gradients)} gradients for them"
            )
        for index, root in enumerate(self._roots):
            gradient = gradients[index] if gradients else None
            if gradient is None:
                tensor = tensors[index]
                if tensor is None or tensor.numel() != 1:
                    raise RuntimeError(
                        "only a root of one element has an implicit gradient; give others in"
                        " grad_roots"
                    )
                with torch.no_grad(), _place_of([tensor]).activated():
                    gradient = torch.ones_like(tensor)
            self._arrive(root.node, root.output_nr, gradient)

    def gradient(self, node: Node, number: int) -> torch.Tensor | None:
        """Run what leads to a node, as far as that has not been done."""
        for ancestor in self._ancestors(node):
            self._run(ancestor)
        return self._complete(node).get(number)

    def _ancestors(self, node: Node) -> list[Node]:
        found: set[Node] = set()
        todo = [node]
        while todo:
            for leading in self._leading.get(todo.pop(), ()):
                if leading not in found and leading not in self._done:
                    found.add(leading)
                    todo.append(leading)
        return sorted(found, key=self._place.__getitem__)

    def _complete(self, node: Node) -> dict[int, torch.Tensor]:
        """Return the gradients that arrived at a node, as the hooks of its tensors leave them."""
        arrived = self._arrived.get(node, {})
        if arrived and node not in self._hooked:
            self._hooked.add(node)
            with _place_of(arrived.values()).activated():
                arrived = self._arrived[node] = _after_hooks(node, arrived)
        return arrived

    def _run(self, node: Node) -> None:
        self._done.add(node)
        arrived = self._complete(node)
        if node not in self._targets:
            # not needed again: this frees the gradients as the walk goes on
            self._arrived.pop(node, None)
        if not arrived:
            return
        with _place_of(arrived.values()).activated():
            for (following, number), gradient in _call(node, arrived):
                # a move may have taken it to another stream
                with _place_of([gradient]).activated():
                    self._arrive(following, number, _fitted(gradient, following, number))
        # a saved value may be a number, which torch takes for a local tensor
        with no_mesh.activate():
            _release(node)

    def _arrive(self, node: Node, number: int, gradient: torch.Tensor) -> None:
        arrived = self._arrived.setdefault(node, {})
        arrived[number] = arrived[number] + gradient if number in arrived else gradient


def _after_hooks(node: Node, arrived: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Gradients as the hooks of their tensors leave them.

    The engine of torch calls the hooks when it is asked for what it is given.
    """
    edges = [GradientEdge(node, number) for number in arrived]
    return dict(
        zip(arrived, torch.autograd.grad(edges, edges, list(arrived.values())), strict=True)
    )


def _call(
    node: Node, arrived: dict[int, torch.Tensor]
) -> Iterator[tuple[tuple[Node, int], torch.Tensor]]:
    """Run the formula of a node; what comes out, and where it goes."""
    edges = node.next_functions
    count = len(node._input_metadata)
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        # Python's formulas get zeros for gradients that have not arrived, and return something for
        # each argument of the function
        inputs = [
            arrived[number] if number in arrived else _zeros(node, number)
            for number in range(count)
        ]
        outputs = _as_tuple(node.apply(*inputs))
        outputs = tuple(
            output for output, needed in zip(outputs, node.needs_input_grad, strict=False) if needed
        )
        edges = tuple(edge for edge in edges if edge[0] is not None)
    else:
        outputs = _as_tuple(node(*[arrived.get(number) for number in range(count)]))
    for edge, gradient in zip(edges, outputs, strict=False):
        if edge[0] is not None and gradient is not None:
            yield edge, gradient


def _as_tuple(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def _zeros(node: Node, number: int) -> torch.Tensor:
    metadata = node._input_metadata[number]
    return torch.zeros(metadata.shape, dtype=metadata.dtype, device=metadata.device)


def _release(node: Node) -> None:
    """Free the tensors that were saved for a node, by letting a hook pack them into nothing."""
    kind: Any = type(node)
    for name in _saved_by(kind):
        saved = getattr(node, name)
        for each in saved if isinstance(saved, (list, tuple)) else (saved,):
            # a number, or nothing; or hooks of the user's own have packed it
            with suppress(RuntimeError, TypeError):
                each.register_hooks(lambda _: None, _unpack_nothing)


@functools.cache
def _saved_by(kind: type) -> list[str]:
    """The attributes in which nodes of a kind keep saved values."""
    return [name for name in dir(kind) if name.startswith("_raw_saved_")]


def _unpack_nothing(_: None) -> torch.Tensor:
    raise RuntimeError(
        "a generator of gradients has been here, and freed the tensors saved for the backward pass"
    )


def _execution_order(roots: Iterable[Node]) -> list[Node]:
    """The nodes as the engine of torch runs them.

    Of the nodes with a complete gradient it takes the one that was made last; leaves at once, as
    their number is the largest.
    """
    todo = list(dict.fromkeys(roots))
    seen, waits = set(todo), Counter[Node]()
    ready = todo[:]
    while todo:
        for following in _following(todo.pop()):
            waits[following] += 1
            if following not in seen:
                seen.add(following)
                todo.append(following)
    arrivals = itertools.count()  # the first of those that are alike
    queue = [(-node._sequence_nr(), next(arrivals), node) for node in ready if not waits[node]]
    heapq.heapify(queue)
    order = []
    while queue:
        node = heapq.heappop(queue)[-1]
        order.append(node)
        for following in _following(node):
            waits[following] -= 1
            if not waits[following]:
                heapq.heappush(queue, (-following._sequence_nr(), next(arrivals), following))
    return order


def _following(node: Node) -> list[Node]:
    return [following for following, _ in node.next_functions if following is not None]


def _fitted(gradient: torch.Tensor, node: Node, number: int) -> torch.Tensor:
    """A gradient in the shape and type of what it belongs to.

    Formulas leave that to the code that runs the graph.
    """
    metadata = node._input_metadata[number]
    if gradient.shape != tuple(metadata.shape):
        gradient = gradient.sum_to_size(metadata.shape)
    if gradient.is_complex() and not metadata.dtype.is_complex:
        gradient = gradient.real
    return gradient if gradient.dtype == metadata.dtype else gradient.to(metadata.dtype)


def _place_of(tensors: Iterable[torch.Tensor]) -> _Place:
    """The mesh and stream on which what flows back is computed."""
    found = next((tensor for tensor in tensors if isinstance(tensor, Tensor)), None)
    return _Place(None, get_active_stream()) if found is None else _Place(found.mesh, found.stream)


def _edges(given: Any) -> list[GradientEdge]:
    return [_edge(each) if isinstance(each, torch.Tensor) else each for each in _listed(given)]


def _edge(tensor: torch.Tensor) -> GradientEdge:
    with _place_of([tensor]).activated():  # for a leaf torch makes a view
        return get_gradient_edge(tensor)


def _root_tensors(roots: Any) -> list[torch.Tensor | None]:
    return [root if isinstance(root, torch.Tensor) else None for root in _listed(roots)]


def _listed(given: Any) -> list[Any]:
    return [given] if isinstance(given, (torch.Tensor, GradientEdge)) else list(given)
