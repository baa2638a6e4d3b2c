"""The local meaning of references, on the rank that unpickles them.

They stand for its tensors, its groups, its place in a mesh.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from ..._core.plane import Slice
from . import torch_groups
from .worker import workers


def value(uid: str, id: int) -> Any:  # noqa: A002  # as it is called everywhere
    """Stands in pickled arguments for a tensor of an engine; gives this rank's."""
    return workers()[uid].value(id)


def process_group(uid: str, number: int) -> Any:
    """Stands in pickled arguments for a process group; gives that of this rank's row."""
    return torch_groups.world(uid).group(number)


def torch_mesh(
    uid: str,
    device: str | None,
    labels: tuple[str, ...],
    sizes: tuple[int, ...],
    ranks: tuple[int, ...],
    numbers: Any,
) -> Any:
    """Stands in pickled arguments for a mesh of `torch.distributed`."""
    found: Any = list(ranks)
    for size in reversed(sizes[1:]):
        found = [found[start : start + size] for start in range(0, len(found), size)]
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return torch_groups.world(uid).mesh(kind, labels, found, numbers)


class Dim(NamedTuple):
    """One dimension of a mesh, seen from one rank.

    Attributes:
        rank: This rank's coordinate.
        size: How many there are.
        members: The ranks that differ from this one in this coordinate only, and this one.
    """

    rank: int
    size: int
    members: list[int]


class MeshHere(NamedTuple):
    """A mesh as an argument of a remote function: seen from the rank that runs it.

    Attributes:
        dims: Each dimension.
        all_ranks: All ranks, in row-major order.
    """

    dims: dict[str, Dim]
    all_ranks: list[int]

    @property
    def ranks(self) -> dict[str, int]:
        """This rank's coordinates."""
        return {name: dim.rank for name, dim in self.dims.items()}

    @property
    def sizes(self) -> dict[str, int]:
        return {name: dim.size for name, dim in self.dims.items()}


def mesh_here(
    uid: str, labels: tuple[str, ...], sizes: tuple[int, ...], ranks: tuple[int, ...]
) -> MeshHere:
    """Stands in pickled arguments for a mesh."""
    index = ranks.index(workers()[uid].rank)
    rows = Slice.new_row_major(sizes)
    dims = {}
    for label, size, stride, coordinate in zip(
        labels, sizes, rows.strides, rows.coordinates(index), strict=True
    ):
        first = index - coordinate * stride
        dims[label] = Dim(coordinate, size, list(ranks[first : first + size * stride : stride]))
    return MeshHere(dims, list(ranks))
