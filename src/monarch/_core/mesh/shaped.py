"""Meshes whose geometry is a `Shape` over the ranks they were spawned with; those of hosts and of procs draw themselves."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NoReturn

from ..actors.context import current_hub
from ..shape import MeshTrait, Shape, Slice
from ..wire.address import host_labels


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


class DrawnMesh(ShapedMesh):
    """Base of host and proc meshes; subclasses say what stands in a cell. Actor meshes have no room for more names."""

    def _cells(self) -> Callable[[int], str]:
        """What gives the text at a row-major position."""
        raise NotImplementedError

    def _draw(self, cells: Callable[[int], str], html: bool = False) -> str:
        from ..shape import grid  # every proc imports this module, people draw few meshes

        return (grid.as_html if html else grid.as_text)(repr(self), self.extent, cells)

    def _repr_html_(self) -> str | None:
        """What notebooks show."""
        return self._draw(self._cells(), html=True)


def names_of(hosts: Sequence[str]) -> dict[str, str]:
    """Short names of hosts, for people; this machine is called as it calls itself."""
    hub = current_hub()
    here = {host for host in hosts if host == hub.address.host or host in hub.hosts}
    others = [host for host in dict.fromkeys(hosts) if host not in here]
    return {**dict.fromkeys(here, os.uname().nodename), **dict(zip(others, host_labels(others), strict=True))}
