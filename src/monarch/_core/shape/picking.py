"""Elements of a mesh that are picked by lists of indices.

The lists are checked, and brought back to strides where they have regular steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from monarch._core.shape.checks import OutOfRangeError, pick_index
from monarch._core.shape.shape import Extent, Point

LISTS = (list, tuple, range)
"""What `slice` takes for a list of indices."""


def regular_picks(
    sizes: Mapping[str, int], selection: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Sequence[int]]]:
    """Take a selection by dimension label apart.

    Returns what strides can express, and the lists of indices that are left.

    Raises:
        ValueError: A list is empty, or has an index twice.
        IndexError: An index is outside of its dimension.
        TypeError: An index is no whole number.
    """
    regular: dict[str, Any] = {}
    irregular: dict[str, Sequence[int]] = {}
    for label, key in selection.items():
        if not isinstance(key, LISTS) or label not in sizes:  # which is an error, and none of lists
            regular[label] = key
            continue
        indices = [pick_index(label, sizes[label], i) for i in key]
        _check_some(indices, f"{label}={key!r}")
        steps = as_steps(indices)
        if steps is None:
            irregular[label] = indices
        else:
            regular[label] = slice(steps.start, steps.stop, steps.step)
    return regular, irregular


def as_positions(
    ranks: Iterable[int | Point], extent: Extent, may_be_none: bool = False
) -> list[int]:
    """Row-major positions for ranks and points of an extent. Raises as `MeshTrait.select`."""
    positions = []
    for rank in ranks:
        if isinstance(rank, Point):
            if rank.extent != extent:
                raise ValueError(
                    f"{rank!r} is a point of a mesh {rank.extent}, and this one is {extent}"
                )
            rank = rank.rank
        try:
            positions.append(pick_index("rank", extent.nelements, rank))
        except OutOfRangeError:
            raise OutOfRangeError(
                f"rank {rank} is outside of {extent}, which has ranks 0 to {extent.nelements - 1}"
            ) from None
    if not may_be_none:
        _check_some(positions, "the ranks")
    return positions


def as_steps(numbers: Sequence[int]) -> range | None:
    """Return the range that has exactly these distinct numbers, in this order.

    None if none with a positive step has.
    """
    if len(numbers) == 1:
        return range(numbers[0], numbers[0] + 1)
    step = numbers[1] - numbers[0]
    if step < 1 or any(after - before != step for before, after in pairwise(numbers)):
        return None
    return range(numbers[0], numbers[-1] + 1, step)


def _check_some(indices: Sequence[int], what: str) -> None:
    if not indices:
        raise ValueError(f"{what}: nothing is selected, and a mesh has at least one element")
    if len(set(indices)) < len(indices):
        raise ValueError(
            f"{what}: an element can be in a mesh once, and {list(indices)} has some twice"
        )
