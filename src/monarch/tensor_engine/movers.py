"""What workers do beyond running functions: sharing out, dropping, and moving data between ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .worker import Worker


def per_rank(worker: Worker, site: int, output: int, table: dict[int, int]) -> None:
    """A scalar that differs from rank to rank."""
    worker.slots[output] = torch.tensor(table[worker.rank])


def drop(worker: Worker, site: int, id: int) -> None:  # noqa: A002  # as it is called everywhere
    """Give back the memory of a value, and of all that shares it; nobody will use them any more."""
    value = worker.slots[id]
    if isinstance(value, torch.Tensor):
        worker.forget_storage(value)


MOVERS: dict[str, Callable[..., None]] = {"per_rank": per_rank, "drop": drop}
