"""Meshes that draw themselves: of hosts, and of procs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ..actors.context import current_node
from ..wire.address import host_labels
from .shaped import ShapedMesh


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
    node = current_node()
    here = {host for host in hosts if host == node.address.host or host in node.hosts}
    others = [host for host in dict.fromkeys(hosts) if host not in here]
    return {**dict.fromkeys(here, os.uname().nodename), **dict(zip(others, host_labels(others), strict=True))}
