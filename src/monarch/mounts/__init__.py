"""Folders of one machine, seen on others, by FUSE.

The names are `monarch.remotemount`, `monarch.gather_mount`, and the mounts of jobs.

On the side with the files: `folder`, `watch` and the actor `source`. On the other side:
`view`, their known state; `blocks`, their content; `content`, how that comes; `tree`, several
views in one; `fuse`, which mounts that; `table`, the mounts of a machine; the actor `daemon`.
`mount` ties these together; `place` tells where folders are.

Read `mount`, then `view` and `fuse`.

Imports `_core.plane`, `actor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .mount import SUBDIR, Mount, folder_here, gather_folders, show_folder
    from .table import TakenError

# few jobs mount anything
__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "mount": ("SUBDIR", "Mount", "folder_here", "gather_folders", "show_folder"),
        "table": ("TakenError",),
    },
)

__all__ = ["SUBDIR", "Mount", "TakenError", "folder_here", "gather_folders", "show_folder"]
