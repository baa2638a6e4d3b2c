"""A `DTensor` of torch: the part of it that this process has.

Nothing is imported here that the program has not imported.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NamedTuple

from .shards import Shard


class LocalPart(NamedTuple):
    """A local tensor, and where in the whole it is."""

    tensor: Any
    shard: Shard


def is_distributed(value: Any) -> bool:
    """Return whether a value is a `DTensor`. A process that has one has imported its module."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def local_part(value: Any, name: str) -> LocalPart | None:
    """Return this process's part of a distributed tensor; None if it has none.

    Args:
        value: A `DTensor`.
        name: Of the tensor, in errors.

    Raises:
        ValueError: It is a partial sum, or its part is not one block of the whole.
    """
    if any(placement.is_partial() for placement in value.placements):
        raise ValueError(
            f"{name} has placements {value.placements}: a sum that is not complete; redistribute it"
            " first"
        )
    tensor = value.detach().to_local()
    if not tensor.numel():
        return None
    utilities = import_module("torch.distributed.tensor._utils")
    whole = tuple(value.shape)
    shape, start = utilities.compute_local_shape_and_global_offset(
        whole, value.device_mesh, value.placements
    )
    if tuple(shape) != tuple(tensor.shape):
        raise ValueError(
            f"{name} has a part of shape {tuple(tensor.shape)} here, where its placements"
            f" {value.placements} say {tuple(shape)}; give its local tensor, with a Shard"
        )
    return LocalPart(tensor, Shard(tuple(start), whole))
