"""Cores of a host, shared out among the procs of a mesh.

torch, OpenMP and what is built on it take a thread for each core, in each process: of eight procs on
64 cores, 512 threads that fight for them. So each computes with its share, as Ray's tasks do with
what they asked for, and as torchrun's ranks do with one. Variables of the environment, and what a
program sets itself, come first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any

from ._guards.surroundings import control_groups, read

VARIABLE = "OMP_NUM_THREADS"  # of OpenMP; torch, MKL and OpenBLAS read it as well


def usable() -> int:
    """How many cores this process may use: by its affinity, and by the quota of its control groups."""
    cores = len(os.sched_getaffinity(0))
    for group in control_groups("cpu"):
        quota, _, period = read(f"{group}/cpu.max").partition(" ")
        if not quota:  # the first version of control groups
            quota, period = read(f"{group}/cpu.cfs_quota_us"), read(f"{group}/cpu.cfs_period_us")
        with suppress(ValueError):  # "max" is none
            if int(quota) > 0:
                cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def shared(
    settings: dict[str, Any], own: Container[str], inherited: Container[str], procs: int
) -> dict[str, Any]:
    """Return the settings of a proc with its number of threads, unless it has one already.

    Args:
        settings: Those of its mesh.
        own: Variables that are changed for it alone, and come before `settings`.
        inherited: The variables of the environment that is changed.
        procs: How many the mesh has on this host; one alone is left what libraries take.
    """
    if VARIABLE in own:
        return {**settings, "threads": None}
    if procs == 1 or VARIABLE in inherited or settings.get("threads") is not None:
        return settings
    return {**settings, "threads": max(1, usable() // procs)}


def strip(environ: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a proc without what `limit` has put there."""
    ours = VARIABLE, str(settings.get("threads"))
    return dict(each for each in environ.items() if each != ours)


def limit(threads: int | None) -> None:
    """Have the libraries of this process compute with so many threads; None leaves them as they are."""
    if threads is None:
        return
    os.environ[VARIABLE] = str(threads)
    torch: Any = sys.modules.get("torch")
    if torch is not None:  # before the fork, it has read the variable as it was
        torch.set_num_threads(threads)
