"""An actor that computes with tensors on procs of its own, and programs that are run for real and
simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from monarch import inspect
from monarch.actor import Actor, endpoint, this_host


class Trainer(Actor):
    """Makes procs and computes on them."""

    @endpoint
    def train(self, ranks: int) -> float:
        procs = this_host().spawn_procs(per_host={"gpus": ranks})
        with procs.activate() as mesh:
            total = torch.ones(3) + mesh.rank("gpus")
            value: float = inspect(total.sum(), gpus=ranks - 1).item()
        procs.stop().get()
        return value


class Starter(Actor):
    """Spawns a trainer."""

    @endpoint
    def train(self, ranks: int) -> float:
        trainer = this_host().spawn_procs(per_host={"gpus": 1}).spawn("trainer", Trainer)
        return trainer.train.call_one(ranks).get()


def network(width: int, batch: int, layers: int) -> Callable[[], Any]:
    """A step of training on the active mesh.

    Args:
        width: Of each layer.
        batch: Rows on each rank.
        layers: How many.
    """
    net = nn.Sequential(
        *[layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.randn(batch, width)

    def step() -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        torch.autograd.backward(loss)
        optimizer.step()
        return loss

    return step
