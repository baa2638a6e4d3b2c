"""Random numbers of the ranks of a mesh: seeding them, alike or apart, and keeping their state.

Its functions are named like torch's own, each with ``_remote``. States are distributed
tensors, of the size that they have.
"""

from __future__ import annotations

import random
from typing import Any

import torch

from monarch.tensor_engine import remote
from monarch.tensor_engine.tensors.collectives import STATE_BYTES


@remote(propagate="inspect")
def set_manual_seed_remote(seed: int, process_idx: Any = 0) -> None:
    """Seed every rank with ``seed ^ process_idx``.

    Args:
        seed: A number.
        process_idx: The same number, so that all ranks draw alike, or ``mesh.process_idx()``, so
            that each draws its own.
    """
    torch.manual_seed(seed ^ int(process_idx))


@remote(propagate="inspect")
def seed_remote() -> None:
    """Seed every rank with a random number of its own."""
    torch.seed()


@remote(propagate="inspect")
def random_seed_remote(seed: int | None = None) -> None:
    """Seed Python's `random` on every rank; by None, each rank with what its system has."""
    random.seed(seed)


@remote(propagate=lambda: torch.empty(STATE_BYTES["cpu"], dtype=torch.uint8))
def get_rng_state_remote() -> torch.Tensor:
    """The state of the CPU's generator of each rank, as a distributed tensor."""
    return torch.get_rng_state()


@remote(propagate="inspect")
def set_rng_state_remote(state: torch.Tensor) -> None:
    """Go on from a state."""
    torch.set_rng_state(state)


@remote(propagate="inspect")
def manual_seed_cuda_remote(seed: int) -> None:
    """Seed the current GPU of every rank; where there is none, nothing happens, as in torch."""
    torch.cuda.manual_seed(seed)


@remote(propagate="inspect")
def manual_seed_all_cuda_remote(seed: int) -> None:
    """Seed all GPUs of every rank; where there is none, nothing happens, as in torch."""
    torch.cuda.manual_seed_all(seed)


@remote
def get_rng_state_all_cuda_remote() -> list[torch.Tensor]:
    """The states of the generators of a rank's GPUs.

    They are a list of distributed tensors, empty where there is no GPU.

    How many there are, and how large, the ranks tell at the first call.
    """
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


@remote(propagate="inspect")
def set_rng_state_all_cuda_remote(states: list[torch.Tensor]) -> None:
    """Go on from the states of all GPUs."""
    torch.cuda.set_rng_state_all(states)


__all__ = [
    "get_rng_state_all_cuda_remote", "get_rng_state_remote", "manual_seed_all_cuda_remote", "manual_seed_cuda_remote",
    "random_seed_remote", "seed_remote", "set_manual_seed_remote", "set_rng_state_all_cuda_remote",
    "set_rng_state_remote",
]  # fmt: skip
