"""Random numbers of the ranks of a mesh: seeding them, alike or apart, and keeping their state."""

from __future__ import annotations

from typing import Any

import torch

from monarch.tensor_engine import remote

_STATE_BYTES = torch.get_rng_state().numel()


@remote(propagate="inspect")
def set_manual_seed_remote(seed: int, process_idx: Any = 0) -> None:
    """Seed every rank with ``seed ^ process_idx``.

    Args:
        seed: A number.
        process_idx: The same number, so that all ranks draw alike, or ``mesh.process_idx()``, so that each draws its own.
    """
    torch.manual_seed(seed ^ int(process_idx))


@remote(propagate=lambda: torch.empty(_STATE_BYTES, dtype=torch.uint8))
def get_rng_state_remote() -> torch.Tensor:
    """The state of the CPU's generator of each rank, as a distributed tensor."""
    return torch.get_rng_state()


@remote(propagate="inspect")
def set_rng_state_remote(state: torch.Tensor) -> None:
    """Go on from a state."""
    torch.set_rng_state(state)


__all__ = ["get_rng_state_remote", "set_manual_seed_remote", "set_rng_state_remote"]
