"""How distributed tensors and meshes travel to workers: as references, within what the engine itself sends.

Anywhere else a reference would be of no use, so pickling a distributed tensor is an error there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import local

if TYPE_CHECKING:
    from .device_mesh import DeviceMesh
    from .tensor import Tensor


class Found:
    """The tensors and meshes that were pickled."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.meshes: list[DeviceMesh] = []


class _Collecting(threading.local):
    found: Found | None = None


_collecting = _Collecting()


@contextmanager
def collecting() -> Iterator[Found]:
    """In here tensors and meshes are pickled as references, and noted."""
    before, _collecting.found = _collecting.found, Found()
    try:
        yield _collecting.found
    finally:
        _collecting.found = before


def reduce_tensor(tensor: Tensor) -> Any:
    found = _collecting.found
    if found is None:
        raise TypeError(
            f"{tensor!r} can't be pickled: its values are on the ranks of its mesh. Fetch them first: "
            "monarch.inspect(tensor), or fetch_shard(tensor).get()"
        )
    found.tensors.append(tensor)
    return local.value, (tensor.mesh.engine.uid, tensor._value.id)


def reduce_mesh(mesh: DeviceMesh) -> Any:
    found = _collecting.found
    if found is None:
        raise TypeError(f"{mesh!r} can't be pickled; send its procs: mesh.procs")
    found.meshes.append(mesh)
    return local.mesh_here, (mesh.engine.uid, mesh._labels, tuple(mesh._ndslice.sizes), mesh.group.ranks)
