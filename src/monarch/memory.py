"""GPU memory of the ranks of the active mesh.

It makes a record of allocations, and a picture, one file per rank.

Files are those of torch, for https://docs.pytorch.org/memory_viz. On CPUs torch keeps no such
record: there a call fails on the ranks, and says so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from monarch.tensor_engine import get_active_mesh, remote


def record_memory_history() -> None:
    """Let all ranks note each allocation from now on."""
    _record()


def dump_memory_snapshot(dir_snapshots: str | os.PathLike[str]) -> None:
    """Let each rank write its record to ``<dir_snapshots>/snapshot_<rank>.pickle`` on its own host.

    Args:
        dir_snapshots: A folder, made if it is not there.

    Raises:
        ValueError: No mesh is active.
        TypeError: It is no path.
    """
    _dump(os.fspath(dir_snapshots), get_active_mesh().process_idx())


@remote(propagate="inspect")
def _record() -> None:
    _check_gpu()
    torch.cuda.memory._record_memory_history()


@remote(propagate="inspect")
def _dump(folder: str, rank: Any) -> None:
    _check_gpu()
    Path(folder).mkdir(parents=True, exist_ok=True)
    memory: Any = torch.cuda.memory  # torch has no types for it
    memory._dump_snapshot(str(Path(folder) / f"snapshot_{int(rank)}.pickle"))


def _check_gpu() -> None:
    if not torch.cuda.is_available():
        raise RuntimeError("torch keeps a history of GPU memory only, and this rank has no GPU")


__all__ = ["dump_memory_snapshot", "record_memory_history"]
