"""Nested lists, tuples and dicts of values, taken apart.

It is `monarch.common.tree` of Monarch 0.7, over those of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch.utils import _pytree as pytree
from torch.utils._pytree import SUPPORTED_NODES

__all__ = ["SUPPORTED_NODES", "filled", "flatten", "flattener"]


def flatten(
    tree: Any, cond: Callable[[Any], bool] | None = None
) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Take the leaves for which `cond` holds out of a tree; None takes all.

    Returns:
        The leaves, and a function that puts as many others in their places.
    """
    leaves, shape = pytree.tree_flatten(tree)
    taken = [index for index, leaf in enumerate(leaves) if cond is None or cond(leaf)]

    def unflatten(others: Sequence[Any]) -> Any:
        replaced = leaves.copy()
        for index, other in zip(taken, others, strict=True):
            replaced[index] = other
        return pytree.tree_unflatten(replaced, shape)

    return [leaves[index] for index in taken], unflatten


def filled(leaves: Iterable[Any], shape: pytree.TreeSpec, kind: type, values: Iterable[Any]) -> Any:
    """Return a tree of leaves in which those of a kind give way to values, in their order."""
    others = iter(values)
    return pytree.tree_unflatten(
        [next(others) if isinstance(leaf, kind) else leaf for leaf in leaves], shape
    )


def flattener(tree: Any, cond: Callable[[Any], bool] | None = None) -> Callable[[Any], list[Any]]:
    """Make a function that takes the same leaves out of another tree of the same shape.

    It only indexes its argument, so that may be an object without a visible structure, such as a
    proxy of `torch.fx`.
    """
    paths = [
        path for path, leaf in pytree.tree_flatten_with_path(tree)[0] if cond is None or cond(leaf)
    ]
    return lambda other: [pytree.key_get(other, path) for path in paths]
