"""The identity of a folder: its machine, and the numbers of the folders above it.

`mount` compares the places of sources and mount points, to refuse a mount inside its own source.
`source` and `daemon` find them, on each host.
"""

from __future__ import annotations

import os
from collections.abc import Hashable

from .._namedtuple import NamedTuple


class FolderPlace(NamedTuple):
    """A folder of one machine, by identity.

    Attributes:
        machine: The machine, and the table of mounts on it.
        way: The folders from ``/`` to this one, by their numbers; by name where there is none yet.
    """

    machine: tuple[str, int]
    way: tuple[Hashable, ...]

    def within(self, other: FolderPlace) -> bool:
        """Return whether a path is a folder, or in it."""
        return self.machine == other.machine and other.way[-1] in self.way


def place_of(path: str) -> FolderPlace:
    """The place of a path on this machine, symlinks followed."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        machine = file.read().strip(), os.stat("/proc/self/ns/mnt").st_ino
    way: list[Hashable] = []
    folder = "/"
    for name in ["", *os.path.realpath(os.path.expanduser(path)).split("/")[1:]]:
        folder = os.path.join(folder, name)
        try:
            status = os.stat(folder)
        except OSError:
            way.append((*way[-1:], name))
        else:
            way.append((status.st_dev, status.st_ino))
    return FolderPlace(machine, tuple(way))
