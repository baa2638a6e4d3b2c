"""A folder of this machine, seen on the hosts of a mesh."""

from __future__ import annotations

import os
from typing import Any

from .actor import HostMesh
from .mounts import Mount, show_folder

__all__ = ["remotemount"]


def remotemount(
    host_mesh: HostMesh,
    sourcepath: str | os.PathLike[str],
    mntpoint: str | os.PathLike[str] | None = None,
    **tuning: Any,
) -> Mount:
    """Show a folder of this machine on hosts, read-only.

    It stays until `Mount.close` or the end of this program.

    Files are sent as they are read. `Mount.refresh` shows changes made here since they were looked
    at.

    Args:
        host_mesh: Hosts to mount it on.
        sourcepath: The folder. What else is mounted in it, and ``.monarch``, is left out.
        mntpoint: Where it is there; None for the same path. Where that is the folder itself,
            nothing is mounted. ``~`` and relative paths are those of this program.
        tuning: Of Monarch 0.7, without effect.

    Returns:
        The mount, which is open.

    Raises:
        ValueError: There is no such folder.
        MountError: A host can't mount anything, or not there.
    """
    return show_folder(host_mesh, sourcepath, mntpoint)
