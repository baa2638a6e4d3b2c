"""What of tensor engines lives in this process: the workers, by the id of their engine, and what references stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from .worker import Worker

workers: dict[str, Worker] = {}


def value(uid: str, id: int) -> Any:  # noqa: A002  # as it is called everywhere
    """Stands in pickled arguments for a tensor of an engine; gives this rank's."""
    return workers[uid].slots[id]


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


def mesh_here(uid: str, labels: tuple[str, ...], sizes: tuple[int, ...], ranks: tuple[int, ...]) -> MeshHere:
    """Stands in pickled arguments for a mesh."""
    index = ranks.index(workers[uid].rank)
    dims, stride = {}, 1
    for label, size in reversed(list(zip(labels, sizes, strict=True))):
        coordinate = index // stride % size
        first = index - coordinate * stride
        dims[label] = Dim(coordinate, size, [ranks[first + step * stride] for step in range(size)])
        stride *= size
    return MeshHere({label: dims[label] for label in labels}, list(ranks))
