"""The GPU of a rank: the one with its number on its host.

All GPUs that the process may use stay visible, as transfers between them need that. The current
device belongs to a thread; so each thread that runs operations enters the rank's own, before the
first that may use it, and not before CUDA is used at all: a context takes half a gigabyte. What a
program says to be on ``cuda:0`` is on each rank's own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_place = (0, 1)  # of this process among those of its host


class _Entered(threading.local):
    place: tuple[int, int] | None = None
    waits = False


_entered = _Entered()


def of_rank(device: torch.device) -> torch.device:
    """A device of the program as ranks have it: the current one of its kind."""
    return torch.device(device.type) if device.index is not None else device


def place(local_rank: int, local_ranks: int) -> None:
    """Note the number of this process, and how many there are on its host."""
    global _place
    _place = local_rank, local_ranks


def enter() -> None:
    """Make the rank's GPU the current device of this thread, as soon as CUDA is used."""
    if _entered.place == _place:
        return
    if not torch.backends.cuda.is_built():
        _entered.place = _place  # there is none
    elif torch.cuda.is_initialized():
        _enter(threading.get_ident())
    elif not _entered.waits:
        _entered.waits = True
        torch.cuda._lazy_call(partial(_enter, threading.get_ident()))


def _enter(thread: int) -> None:
    # at the start of CUDA, by the thread that starts it, which may be another one
    if thread == threading.get_ident():
        torch.cuda.set_device(_own())
        _entered.place = _place


def around(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as one for which the current device is the rank's."""

    def entered(*args: Any, **kwargs: Any) -> Any:
        enter()
        return function(*args, **kwargs)

    return entered


def _own() -> int:
    """The number of the rank's GPU, among those that this process may use.

    Raises:
        RuntimeError: There are fewer than ranks.
    """
    (local_rank, local_ranks), count = _place, torch.cuda.device_count()
    if local_rank < count:
        return local_rank
    if count == 1 and any(os.environ.get(name) for name in _VISIBLE):  # given to this process
        return 0
    raise RuntimeError(
        f"process {local_rank} of {local_ranks} on this host has no GPU of its own, as it may use"
        f" {count}: spawn as many as there are GPUs, or set CUDA_VISIBLE_DEVICES in a bootstrap"
    )
