"""Shards of one model that ranks save and load together, as `torch.distributed.checkpoint` does."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

MATRIX = 4096  # rows and columns of a matrix of 4-byte numbers: 64 MiB


def seconds_to_save_and_load(megabytes: int, folder: str) -> dict[str, float]:
    """Save so much into an empty folder and load it again; checks that it is the same."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    ranks, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh("cpu", (ranks,))
    count = max(1, megabytes * 1_000_000 // (4 * MATRIX * MATRIX))

    def state(value: float) -> dict[str, Any]:
        local = (MATRIX // ranks, MATRIX)
        return {
            f"matrix {number}": DTensor.from_local(
                torch.full(local, value * (number + ranks * rank)), mesh, [Shard(0)]
            )
            for number in range(count)
        }

    def measured(do: Any, tensors: dict[str, Any]) -> float:
        dist.barrier()
        begun = time.perf_counter()
        do(tensors, checkpoint_id=folder)
        dist.barrier()
        return time.perf_counter() - begun

    saved = state(1.0)
    found = {"save": measured(save, saved)}
    loaded = state(0.0)
    found["load"] = measured(load, loaded)
    for name, tensor in saved.items():
        assert torch.equal(tensor.to_local(), loaded[name].to_local()), f"{name} differs"
    return found
