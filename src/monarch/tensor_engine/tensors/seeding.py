"""Functions of torch that seed, read and set random generators of the active mesh's ranks.

``torch.manual_seed`` seeds the ranks of the mesh, all with the same number, and this process. The
same number everywhere, since parameters shall start equal on all ranks, as they would in a program
on one device. For numbers that differ, use
`monarch.builtins.random.set_manual_seed_remote(seed, mesh.process_idx())`.

``torch.get_rng_state`` gives a distributed tensor, each rank's own state, and
``torch.set_rng_state`` takes it, or a fetched one, for all ranks. So what torch builds on them
holds on the ranks: ``fork_rng``, and checkpointing, which computes an activation a second time and
must draw the same dropout.

These functions of torch do not go through its dispatcher, so they are replaced, when this module is
imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import collectives
from .activation import active_mesh
from .tensor import Tensor

_seed_here = torch.manual_seed


@functools.wraps(_seed_here)
def manual_seed(seed: int) -> Any:
    """Seed the generator here, and those of the ranks of the active mesh."""
    generator = _seed_here(seed)
    mesh = active_mesh()
    if mesh is not None:
        collectives.seed(mesh, int(seed))
    return generator


def _getter(device: str, here: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(here)
    def get_rng_state(*args: Any, **kwargs: Any) -> torch.Tensor:
        mesh = active_mesh()
        return here(*args, **kwargs) if mesh is None else collectives.random_state(mesh, device)

    return get_rng_state


def _setter(device: str, here: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(here)
    def set_rng_state(new_state: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        if isinstance(new_state, Tensor):
            collectives.set_random_state(new_state, device)
        elif active_mesh() is not None:
            distributed: Any = torch.tensor(new_state.tolist(), dtype=torch.uint8)
            collectives.set_random_state(distributed, device)
        else:
            here(new_state, *args, **kwargs)

    return set_rng_state


torch.manual_seed = torch.random.manual_seed = manual_seed
torch.get_rng_state = torch.random.get_rng_state = _getter("cpu", torch.get_rng_state)
torch.set_rng_state = torch.random.set_rng_state = _setter("cpu", torch.set_rng_state)
torch.cuda.get_rng_state = torch.cuda.random.get_rng_state = _getter(
    "cuda", torch.cuda.get_rng_state
)
torch.cuda.set_rng_state = torch.cuda.random.set_rng_state = _setter(
    "cuda", torch.cuda.set_rng_state
)
