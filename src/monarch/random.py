"""Random numbers under control: generator states of the active mesh, and determinism.

`monarch.builtins.random` has the pieces. All functions here need an active mesh.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from monarch.builtins.random import (
    get_rng_state_all_cuda_remote,
    get_rng_state_remote,
    set_rng_state_all_cuda_remote,
    set_rng_state_remote,
)
from monarch.tensor_engine import remote


class State(NamedTuple):
    """The state of the random generators of the ranks.

    Attributes:
        cpu: Of the CPU: a distributed tensor.
        cuda: Of each GPU; empty where there is none.
    """

    cpu: torch.Tensor
    cuda: list[torch.Tensor]


def get_state() -> State:
    """Return the state of the random generators of the ranks."""
    return State(get_rng_state_remote(), get_rng_state_all_cuda_remote())


def set_state(state: State) -> None:
    """Go on from a state.

    Args:
        state: What `get_state` or `new_state` returned.
    """
    set_rng_state_remote(state.cpu)
    if state.cuda:
        set_rng_state_all_cuda_remote(state.cuda)


def new_state(seed: torch.Tensor | int) -> State:
    """The state that seeding would give; that of the ranks stays as it is.

    Args:
        seed: A number for all ranks, or a distributed tensor of one element.
    """
    return State(*_seeded(seed))


def make_deterministic() -> None:
    """Have the ranks use deterministic algorithms, or fail.

    Call it before they use their GPUs.
    """
    _use_deterministic_algorithms()


@remote
def _seeded(seed: torch.Tensor | int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    gpus = list(range(torch.cuda.device_count()))
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(int(seed))
        return torch.get_rng_state(), [torch.cuda.get_rng_state(gpu) for gpu in gpus]


@remote(propagate="inspect")
def _use_deterministic_algorithms() -> None:
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


__all__ = ["State", "get_state", "make_deterministic", "new_state", "set_state"]
