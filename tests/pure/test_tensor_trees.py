"""Nested values taken apart, `monarch.common.tree`."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

from monarch.tensor_engine.trees import flatten, flattener  # noqa: E402  # it needs torch


class Pair(NamedTuple):
    first: Any
    second: Any


def is_number(leaf: object) -> bool:
    return isinstance(leaf, int)


@pytest.mark.parametrize(
    ("tree", "leaves"),
    [
        ((1, [2, {"a": 3}]), [1, 2, 3]),
        (7, [7]),
        ((), []),
        ([None, ("s",)], [None, "s"]),
        (Pair(1, [2]), [1, 2]),
    ],
)
def test_leaves_come_out_in_order(tree: Any, leaves: list[Any]) -> None:
    assert flattener(tree)(tree) == leaves
    assert flatten(tree)[0] == leaves


def test_only_the_leaves_of_the_first_tree_that_are_wanted_are_taken_from_the_next() -> None:
    assert flattener((1, "s", [2, None]), is_number)(("a", "b", ["c", "d"])) == ["a", "c"]


def test_the_other_tree_may_be_one_that_cannot_be_looked_at() -> None:
    traced = torch.fx.symbolic_trace(flattener((1, {"a": [2]})))
    assert traced((5, {"a": [6]})) == [5, 6]


def test_leaves_are_put_back_in_their_places() -> None:
    leaves, unflatten = flatten((1, "s", [2]), is_number)
    assert (leaves, unflatten([8, 9])) == ([1, 2], (8, "s", [9]))
    with pytest.raises(ValueError, match="argument 2"):
        unflatten([8])
