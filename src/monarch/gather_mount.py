"""Folders of the hosts of a mesh, seen on this machine."""

from __future__ import annotations

import os

from .actor import HostMesh
from .mounts import Mount, gather_folders

__all__ = ["gather_mount"]


def gather_mount(
    host_mesh: HostMesh,
    remote_mount_point: str | os.PathLike[str],
    local_mount_point: str | os.PathLike[str],
) -> Mount:
    """Show a folder of each host on this machine, read-only.

    It stays until `Mount.close` or the end of this program.

    Files that are written there are seen here, as they grow.

    Args:
        host_mesh: Hosts with the folders.
        remote_mount_point: Which folder; ``$SUBDIR`` in it stands for the folder below which the
            host is seen here. It may come to be there later. Other mounts in it are left out.
        local_mount_point: Where they are seen: ``hosts_0`` and so on below it; for a single host it
            itself.

    Returns:
        The mount, which is open.

    Raises:
        MountError: This machine can't mount anything, or not there.
    """
    return gather_folders(host_mesh, remote_mount_point, local_mount_point)
