"""Groups of ranks as arguments of functions and endpoints on the ranks.

There they are used with `torch.distributed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..worker import local
from . import references
from .mesh_groups import public_groups_along

if TYPE_CHECKING:
    from .rank_mesh import RankMesh


class RemoteProcessGroup:
    """The ranks along some dimensions of a mesh, for remote functions and actors.

    Each gets a ``torch.distributed.ProcessGroup`` of its row, for use with
    ``torch.distributed.all_reduce(x, group=group)`` and the like. Made by
    `DeviceMesh.process_group`.

    All ranks of a row must use it in the same order, as always with such groups. Ranks of torch's
    default group are those of the whole mesh of the engine, as in `DeviceMesh.process_idx`.
    """

    def __init__(self, mesh: RankMesh, dims: str | Iterable[str]) -> None:
        self._mesh = mesh
        self._names = (dims,) if isinstance(dims, str) else tuple(dims)
        self._size = mesh.size(self._names)
        self._number = public_groups_along(mesh, self._names)
        self._dropped = False

    def size(self) -> int:
        """How many ranks are in each row."""
        return self._size

    def drop(self) -> None:
        """Drop the group, which can't be passed on any more."""
        self._dropped = True

    def __reduce__(self) -> Any:
        if self._dropped:
            raise TypeError("this process group was dropped")
        references.check_collecting(self, self._mesh.engine)
        return local.process_group, (self._mesh.engine.uid, self._number)


class RemoteTorchMesh:
    """A mesh, for remote functions and actors.

    Each gets a ``torch.distributed.device_mesh.DeviceMesh`` with the same dimensions, for
    ``DTensor.from_local(x, mesh, placements)`` and all else that works with those. Made by
    `DeviceMesh.torch_mesh`.
    """

    def __init__(self, mesh: RankMesh, device: str | None) -> None:
        if not mesh._labels:
            raise ValueError(
                f"{mesh!r} has no dimensions, so there is nothing to shard along; slice with a"
                " range, not an index"
            )
        self._mesh = mesh
        self._device = device
        self._numbers = tuple(public_groups_along(mesh, (label,)) for label in mesh._labels)

    def __reduce__(self) -> Any:
        mesh = self._mesh
        references.check_collecting(self, mesh.engine)
        return local.torch_mesh, (
            mesh.engine.uid, self._device, mesh._labels, tuple(mesh._ndslice.sizes), mesh.group.ranks, self._numbers,
        )  # fmt: skip
