"""``torch.manual_seed`` while a mesh is active: seeds the ranks of the mesh, all with the same number, and this process.

The same number everywhere, since parameters shall start equal on all ranks, as they would in a program on one device. For
numbers that differ, use `monarch.builtins.random.set_manual_seed_remote(seed, mesh.process_idx())`.

torch's function does not go through its dispatcher, so it is replaced, when this module is imported.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from . import movement
from .activation import active_mesh

_seed_here = torch.manual_seed


@functools.wraps(_seed_here)
def manual_seed(seed: int) -> Any:
    generator = _seed_here(seed)
    mesh = active_mesh()
    if mesh is not None:
        movement.seed(mesh, int(seed))
    return generator


torch.manual_seed = torch.random.manual_seed = manual_seed
