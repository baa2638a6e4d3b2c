"""Members of groups of gloo, torch's backend for tensors on CPUs."""

from __future__ import annotations

import datetime
from typing import Any

import torch.distributed as dist

TIMEOUT = datetime.timedelta(minutes=30)
LOOPBACK = "127.0.0.1"


def gloo(store: Any, index: int, size: int, device: Any) -> Any:
    """One member of a group; returns when all of them are there.

    Args:
        store: Where they find each other.
        index: This one.
        size: How many they are.
        device: The network between them.
    """
    options = dist.ProcessGroupGloo._Options()
    options._timeout = TIMEOUT
    options._devices = [device]
    return dist.ProcessGroupGloo(store, index, size, options)
