"""Meshes whose geometry is a `Shape` over the ranks they were spawned with."""

from __future__ import annotations

from typing import NoReturn

from ..shape import MeshTrait, Shape, Slice


class ShapedMesh(MeshTrait):
    """Base of host, proc and actor meshes; subclasses set `_shape` and define `_new_with_shape`."""

    _shape: Shape

    @property
    def _ndslice(self) -> Slice:
        return self._shape.ndslice

    @property
    def _labels(self) -> tuple[str, ...]:
        return tuple(self._shape.labels)

    def __getitem__(self, index: object) -> NoReturn:
        # to iterate over a mesh is to ask for its element 0 first
        labels = self._labels
        if not labels:
            raise TypeError(f"{self!r} is one element, not a sequence: use it as it is")
        one = ", ".join(f"{label}={index!r}" if label == labels[-1] else f"{label}=0" for label in labels)
        raise TypeError(
            f"{self!r} is not a sequence. A part of it is mesh.slice({one}); one call to the mesh reaches all ranks, and "
            "`for point, value in mesh.endpoint.call().get()` goes through their answers"
        )
