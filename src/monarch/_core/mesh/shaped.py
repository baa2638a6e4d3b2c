"""Meshes whose geometry is a `Shape` over the ranks they were spawned with."""

from __future__ import annotations

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
