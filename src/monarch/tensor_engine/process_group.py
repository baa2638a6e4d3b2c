"""Groups of ranks as arguments of remote functions, which use them with `torch.distributed`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import local, movement, references

if TYPE_CHECKING:
    from .device_mesh import DeviceMesh


class RemoteProcessGroup:
    """The ranks along some dimensions of a mesh, for remote functions: each gets a ``torch.distributed.ProcessGroup`` of its
    row, for use with ``torch.distributed.all_reduce(x, group=group)`` and the like. Made by `DeviceMesh.process_group`.

    All ranks of a row must use it in the same order, as always with such groups.
    """

    def __init__(self, mesh: DeviceMesh, dims: str | Iterable[str]) -> None:
        self._mesh = mesh
        self._names = (dims,) if isinstance(dims, str) else tuple(dims)
        self._size = mesh.size(self._names)
        self._number = movement.groups_along(mesh, self._names)
        self._dropped = False

    def size(self) -> int:
        """How many ranks are in each row."""
        return self._size

    def drop(self) -> None:
        """It can't be passed on any more."""
        self._dropped = True

    def __reduce__(self) -> Any:
        if self._dropped:
            raise TypeError("this process group was dropped")
        references.check_collecting(self)
        return local.process_group, (self._mesh.engine.uid, self._number)
