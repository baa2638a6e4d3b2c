"""Syncs edited code to the hosts where it runs.

Only changes are sent, and they take effect as a whole.

A `Workspace` is some folders of this machine. `scan` finds their contents (`ignore` decides on
exclusions) and makes a `manifest`; `push` asks the agent of each host what it lacks, and sends that
down the tree of hosts; `host` is their side, and `store` the folder there. Procs that start
afterwards import from it. `reload` is what running ones can do.

Read `push`, then `host` and `store`.

Imports `_core.plane`, `_patterns`, `actor`, `programs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .outcome import ProcReload, SyncResult
    from .push import sync_hosts
    from .scan import Scanner
    from .workspace import Workspace

__getattr__, __dir__ = lazy_names(  # a host needs little of it, a proc less
    __name__,
    {
        "outcome": ("ProcReload", "SyncResult"),
        "push": ("sync_hosts",),
        "scan": ("Scanner",),
        "workspace": ("Workspace",),
    },
)

__all__ = ["ProcReload", "Scanner", "SyncResult", "Workspace", "sync_hosts"]
