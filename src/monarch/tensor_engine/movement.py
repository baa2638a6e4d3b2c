"""Between ranks: placeholder."""

from __future__ import annotations

from typing import Any

import torch

from . import fakes, sites
from .instructions import MOVE
from .tensor import Tensor, new_tensor


def per_rank(mesh: Any, numbers: list[int]) -> Tensor:
    with fakes.faking():
        meta = fakes.meta_of(torch.empty((), dtype=torch.int64))
    made = new_tensor(mesh, meta)
    table = dict(zip(mesh.group.ranks, numbers, strict=True))
    mesh.engine.submit(mesh.group, (MOVE, sites.here(), "per_rank", (made._value.id, table)))
    return made


def drop(tensor: Tensor) -> None:
    mesh = tensor.mesh
    mesh.engine.submit(mesh.group, (MOVE, sites.here(), "drop", (tensor._value.id,)))
