"""Resources of the machine that this process may take: descriptors, and cores.

torch, OpenMP and libraries built on it take a thread for each core, in each process: of eight procs
on 64 cores, 512 threads that fight for them. So the procs of a mesh share the cores of their host,
as Ray's tasks have what they asked for, and torchrun's ranks one. Variables of the environment, and
what a program sets itself, come first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any

from ._guards.surroundings import control_groups, read

_RESERVE = 8
_THREADS = "OMP_NUM_THREADS"  # of OpenMP; torch, MKL and OpenBLAS read it as well
_OF_MKL = "MKL_NUM_THREADS"  # comes before it in MKL, and in torch where that has MKL
_OPENBLAS = "scipy_openblas{}", "scipy_openblas{}64_", "openblas{}", "openblas{}64_"
_NUMPY = "numpy.{}._multiarray_umath"  # which is linked with OpenBLAS, by one of those names
_MOST = 1 << 20  # beyond it, programs that look at each possible descriptor take seconds


def allow_many() -> None:
    """Raise the soft limit of descriptors to the hard one; it is low for users of `select`."""
    import resource  # a client has no need for it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard and soft < _MOST:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _MOST), hard))


def none_left() -> str:
    """Describe a shortage of descriptors. Imports nothing, as an import takes a descriptor."""
    return (
        f"no descriptor is left in the process (limit {os.sysconf('SC_OPEN_MAX')}, see `ulimit -n`)"
    )


class Reserve:
    """Descriptors for nothing, each of which can be given up for one that is needed.

    For one thread.
    """

    def __init__(self) -> None:
        self._spare: list[int] = []

    def __len__(self) -> int:
        return len(self._spare)

    def fill(self) -> None:
        """Take as many as there shall be, if they are to be had."""
        try:  # each new proc comes here, and `suppress` costs it three calls
            while len(self._spare) < _RESERVE:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass

    def give_up_one(self) -> bool:
        """Close the spare descriptor, and return whether there was one."""
        if self._spare:
            os.close(self._spare.pop())
            return True
        return False

    def close(self) -> None:
        while self.give_up_one():
            pass


def usable_cores() -> int:
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


def share_cores(settings: dict[str, Any], environ: Container[str], procs: int) -> dict[str, Any]:
    """Return the settings of a mesh with a number of threads, unless its program has said one.

    Args:
        settings: Its settings.
        environ: The variables that its procs inherit.
        procs: How many it has on this host; one alone is left what libraries take.
    """
    if procs == 1 or settings.get("threads") is not None or _are_said(environ):
        return settings
    return {**settings, "threads": max(1, usable_cores() // procs)}


def of_proc(settings: dict[str, Any], own: Container[str]) -> dict[str, Any]:
    """Return the settings of a proc; variables that are changed for it alone come before them."""
    return {**settings, "threads": None} if _are_said(own) else settings


def _are_said(environ: Container[str]) -> bool:
    return _THREADS in environ or _OF_MKL in environ


def without_share(environ: dict[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment of a proc without what `limit_threads` has put there."""
    if environ.get(_THREADS) != str(settings.get("threads")):
        return environ
    return {name: value for name, value in environ.items() if name != _THREADS}


def limit_threads(settings: Mapping[str, Any]) -> None:
    """Have the libraries of this proc compute with the number of threads in its settings, if any."""
    if (threads := settings.get("threads")) is None:
        return
    os.environ.pop(_OF_MKL, None)
    os.environ[_THREADS] = str(threads)
    # libraries that were there before the fork have read the variables as they were
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(threads)
    numpy = sys.modules.get(_NUMPY.format("_core")) or sys.modules.get(_NUMPY.format("core"))
    if numpy is not None and "OPENBLAS_NUM_THREADS" not in os.environ:
        import ctypes  # which the spawner has

        blas = ctypes.CDLL(numpy.__file__)  # and the libraries that it is linked with
        for name in _OPENBLAS:
            getattr(blas, name.format("_set_num_threads"), lambda _: None)(threads)
