"""`grad_generator`, `grad_function` and `gradient_execution_order` on local tensors: they give what
`torch.autograd.grad` does.
"""

# What torch returns here is more than its annotations say.
# mypy: disable-error-code="no-untyped-call, arg-type"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="gradients need torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd.graph import get_gradient_edge
from torch.multiprocessing.reductions import StorageWeakRef

from monarch.tensor_engine import (
    GradientGenerator,
    grad_function,
    grad_generator,
    gradient_execution_order,
)

Values = list[torch.Tensor]


class ScaleBoth(torch.autograd.Function):
    """Two results, and an argument that is no tensor in front of those that are."""

    @staticmethod
    def forward(ctx: Any, factor: float, x: torch.Tensor, y: torch.Tensor) -> Any:
        ctx.factor = factor
        ctx.save_for_backward(y)
        return x * factor, y * y

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return None, grads[0] * ctx.factor, grads[1] * 2 * y


@grad_function
def swap(pair: tuple[torch.Tensor, torch.Tensor], factor: float) -> Any:
    first, second = pair
    return {"a": second * factor, "b": first.sin()}, lambda a, b: (
        (b * first.cos(), a * factor),
        None,
    )


def hooked(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda grad: grad.clamp(-1, 1))
    # y itself is no target: torch gives its gradient before or after hooks, as it happens
    return y.view_as(y)


# each takes two tensors of shape [2, 3] and gives one or several of them
STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": lambda x, y: x + y,
    "square": lambda x, y: x * x,
    "broadcast": lambda x, y: x * y.sum(0),
    "halves": lambda x, y: [half.expand(2, 3) for half in x.sin().split(1)],
    "rows": lambda x, y: torch.stack(list(reversed((x * y).unbind(0)))),
    "view": lambda x, y: x.reshape(3, 2).t(),
    "in place": lambda x, y: x.clone().mul_(y),
    "of another type": lambda x, y: x.double().cos().float(),
    "matmul": lambda x, y: x @ y.t() @ y,
    "sort": lambda x, y: (x + y).sort(1).values,
    "two results": lambda x, y: ScaleBoth.apply(3.0, x, y),
    "one of two results": lambda x, y: ScaleBoth.apply(3.0, x, y)[1],
    "a function with its backward": lambda x, y: list(swap((x, y), 2.0).values()),
    "half of that": lambda x, y: swap((x, y), 2.0)["b"],
    "a hook": lambda x, y: hooked(x),
    "detached": lambda x, y: x.detach() * y,
    "complex": lambda x, y: (x.to(torch.complex64) * 1j * y).abs(),
    "picked": lambda x, y: x[[1, 0, 1]][:2],
}


def graph(steps: list[tuple[str, int, int]]) -> tuple[Values, Values]:
    """Leaves, and all tensors that some steps made of them."""
    torch.manual_seed(0)
    leaves = [torch.randn(2, 3, requires_grad=True) for _ in range(3)]
    values: Values = list(leaves)
    for name, first, second in steps:
        made = STEPS[name](values[first % len(values)], values[second % len(values)])
        values += list(made) if isinstance(made, (list, tuple)) else [made]
    return leaves, values


step = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 30), st.integers(0, 30))


@settings(max_examples=150)
@given(st.lists(step, min_size=1, max_size=8), st.data())
def test_gradients_of_any_graph_are_those_of_torch_in_any_order(
    steps: list[tuple[str, int, int]], data: Any
) -> None:
    def pick(values: Values) -> tuple[Values, Values, Values]:
        wanting = [value for value in values if value.requires_grad]
        roots = [wanting[index] for index in root_numbers if index < len(wanting)] or wanting[-1:]
        targets = [wanting[index % len(wanting)] for index in target_numbers]
        return roots, targets, [torch.full((2, 3), 0.5 + index) for index in range(len(roots))]

    root_numbers = data.draw(st.lists(st.integers(0, 12), max_size=3, unique=True))
    target_numbers = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=5))
    roots, targets, gradients = pick(graph(steps)[1])
    expected = torch.autograd.grad(roots, targets, gradients, allow_unused=True)
    roots, targets, gradients = pick(graph(steps)[1])
    found = list(grad_generator(roots, targets, gradients))
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)
    assert all(leaf.grad is None for leaf in targets if leaf.is_leaf)


@settings(max_examples=60)
@given(st.lists(step, min_size=1, max_size=8))
def test_in_execution_order_no_gradient_needs_more_than_those_before_it(
    steps: list[tuple[str, int, int]],
) -> None:
    """What a backward pass reaches first comes first, as hooks on the leaves and on what was made
    of them would tell.
    """
    _, values = graph(steps)
    targets = [value for value in values if value.requires_grad]
    root = sum(targets).sum()  # type: ignore[union-attr]
    order = gradient_execution_order(root, targets)
    assert sorted(order) == list(range(len(targets)))
    place = {index: position for position, index in enumerate(order)}
    nodes = [get_gradient_edge(target).node for target in targets]
    for index, node in enumerate(nodes):
        for other, following in enumerate(nodes):
            if following is not node and following in below(node):
                assert place[index] < place[other]


def below(node: Any) -> set[Any]:
    found: set[Any] = set()
    todo = [node]
    while todo:
        for following, _ in todo.pop().next_functions:
            if following is not None and following not in found:
                found.add(following)
                todo.append(following)
    return found


def test_the_execution_order_of_a_chain_is_that_of_torch() -> None:
    a, w1, w2, w3 = weights = [torch.ones(2, requires_grad=True) for _ in range(4)]
    root = ((w1.exp() * w2).exp() * w3).exp() + a
    assert gradient_execution_order(root.sum(), weights) == [0, 3, 2, 1]


@settings(max_examples=60)
@given(st.lists(step, min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_execution_order_of_leaves_is_that_in_which_torch_accumulates_them(
    steps: list[tuple[str, int, int]], random: Any
) -> None:
    _, values = graph(steps)
    # what was made last need not be used last
    wanting = [value for value in values if value.requires_grad]
    random.shuffle(wanting)
    root = sum(value.exp() for value in wanting).sum()  # type: ignore[union-attr]
    leaves = [value for value in wanting if value.is_leaf]
    reached: list[int] = []
    for index, leaf in enumerate(leaves):
        leaf.register_post_accumulate_grad_hook(lambda _, index=index: reached.append(index))
    order = gradient_execution_order(root, leaves)
    root.backward()
    assert order == reached


def test_roots_that_do_not_lead_to_it_come_last_in_execution_order() -> None:
    x, y, unused = (torch.ones(1, requires_grad=True) for _ in range(3))
    assert gradient_execution_order((x * 2 + y).sum(), [unused, x, y])[-1] == 0


def layers(count: int) -> tuple[Values, list[StorageWeakRef], torch.Tensor]:
    """Weights, what is saved for the backward pass of each, and the end."""
    x = torch.ones(4)
    weights, saved = [], []
    for _ in range(count):
        weights.append(torch.ones(4, requires_grad=True))
        x = (x * weights[-1]).exp()
        saved.append(StorageWeakRef(x.untyped_storage()))
    return weights, saved, x.sum()


def test_what_was_saved_is_freed_step_by_step() -> None:
    weights, saved, loss = layers(3)
    generator = grad_generator(loss, reversed(weights))
    assert [each.expired() for each in saved] == [False, False, False]
    alive = []
    for gradient in generator:
        assert gradient is not None
        alive.append([not each.expired() for each in saved])
    assert alive == [[True, True, False], [True, False, False], [False, False, False]]
    with pytest.raises(RuntimeError, match="freed"):
        loss.backward()


def test_a_generator_that_is_not_asked_leaves_the_graph_as_it_was() -> None:
    weights, _, loss = layers(2)
    grad_generator(loss, weights)
    loss.backward()
    assert weights[0].grad is not None


def test_tensors_packed_by_hooks_of_the_users_own_are_used_as_they_unpack_them() -> None:
    x = torch.ones(3, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.tolist(), torch.tensor):
        y = (x.exp() * 2).sin().sum()
    (expected,) = torch.autograd.grad(y, x, retain_graph=True)
    (found,) = grad_generator(y, [x])
    assert found is not None
    torch.testing.assert_close(found, expected)


def test_hooks_are_called_once_with_all_that_arrives() -> None:
    x = torch.ones(2, requires_grad=True)
    seen: Values = []
    y = x * 3
    y.register_hook(seen.append)
    gradients = list(grad_generator((y * 2 + y.sin()).sum(), [y, x, y]))
    assert len(seen) == 1
    torch.testing.assert_close(gradients[0], seen[0])
    torch.testing.assert_close(gradients[2], seen[0])


def test_an_error_of_a_formula_is_raised_where_its_gradient_is_asked_for() -> None:
    @grad_function
    def fails(x: torch.Tensor) -> Any:
        def backward(grad: torch.Tensor) -> Any:
            raise ArithmeticError("no gradient today")

        return x * 1, backward

    first, second = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    generator = grad_generator((fails(first) + second).sum(), [second, first])
    assert next(generator) is not None
    with pytest.raises(ArithmeticError, match="today"):
        next(generator)


def test_a_backward_function_must_give_a_gradient_for_each_argument() -> None:
    two = grad_function(lambda x, y: (x * y, lambda grad: grad))
    with pytest.raises(ValueError, match="1 gradients for 2 arguments"):
        two(torch.ones(2, requires_grad=True), torch.ones(2)).sum().backward()


def test_roots_need_a_graph_and_as_many_gradients_as_there_are_roots() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="2 roots and 1 gradients"):
        grad_generator([x.sum(), x.mean()], [x], [torch.ones(())])
    with pytest.raises(RuntimeError, match="requires? grad"):
        grad_generator(torch.ones(()), [x])
    with pytest.raises(RuntimeError, match="one element"):
        grad_generator(get_gradient_edge(x * 2), [x])


def test_gradient_edges_serve_as_roots_and_targets() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    found = list(
        grad_generator(
            [get_gradient_edge(y.sin())], [get_gradient_edge(y), get_gradient_edge(x)], [y]
        )
    )
    assert found[1] is not None
    torch.testing.assert_close(found[1], 2 * y.cos() * y)


def test_a_list_of_results_without_a_graph_is_no_error_where_nothing_is_wanted() -> None:
    assert list(grad_generator()) == []


def test_a_function_with_its_backward_may_be_derived_again() -> None:
    x = torch.ones(2, requires_grad=True)
    result = swap((x, x * 1), 2.0)["b"].sum()
    first = torch.autograd.grad(result, x, retain_graph=True)
    second = torch.autograd.grad(result, x)
    torch.testing.assert_close(first, second)


def test_a_gradient_generator_is_the_same_as_an_iterator() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 3
    gradients = GradientGenerator([y.sum()], [y, x], [None], lambda context: context)
    assert iter(gradients) is gradients
    assert [gradient.tolist() for gradient in gradients if gradient is not None] == [
        [1.0, 1.0],
        [3.0, 3.0],
    ]
