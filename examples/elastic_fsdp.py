"""Training with sharded weights that goes on when ranks are killed: FSDP2 over ranks that are
replaced, with no file.

Four ranks are two replicas of two shards each (hybrid sharding). The script kills a rank twice,
with SIGKILL, in the middle of the training. Each shard of the dead rank exists once more, on the
other replica: the next world reads what it needs from the memory of all ranks that are left, in
whatever layout it has. The losses are those of one rank that trains alone, with all of the weights.

    python examples/elastic_fsdp.py

What to look for:

* ``fully_shard``              in `train`: model and optimizer are made anew for the ranks of each world
* ``world.restore``            then gives them their state, from shards in the memory of living ranks
* ``replicas``                 what a dead rank had is lost where there is one replica: then a checkpoint is the way back
"""

import logging
import math
import os
import random
import signal
from contextlib import suppress

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from monarch.actor import this_host
from monarch.config import configure
from monarch.elastic import Batches, ElasticGroup, World

RANKS, STEPS, SAMPLES, BATCH = 4, 40, 480, 48


# region training
class Training:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.rand(SAMPLES, 2, generator=generator) * 4 - 2
        self.targets = self.inputs.prod(1, keepdim=True)
        self.batches = Batches(SAMPLES, BATCH)

    def train(self, world: World) -> None:
        replicas = 1 if world.size % 2 else 2
        mesh = init_device_mesh(
            "cpu", (replicas, world.size // replicas), mesh_dim_names=("replicas", "shards")
        )
        torch.manual_seed(0)  # in the first world all ranks have to begin with the same weights
        model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        world.restore(model=model, optimizer=optimizer)
        for step in world.steps(STEPS):
            mine = self.batches.indices(step, world)
            loss = (
                (model(self.inputs[mine]) - self.targets[mine]).square().sum() * world.size / BATCH
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                world.report({"loss": self.loss(model), "pid": os.getpid()})

    # endregion

    def loss(self, model: nn.Module) -> float:
        """Over all samples; all ranks compute it, since each has only a part of the weights."""
        with torch.no_grad():
            return float((model(self.inputs) - self.targets).square().mean())


def train(ranks: int, kills: dict[int, int]) -> dict[int, float]:
    """The losses by step, of a run in which some ranks are killed: at which step which."""
    deaths = len(kills)
    # region group
    group = ElasticGroup(this_host(), Training, ranks=ranks, min_ranks=ranks)
    losses: dict[int, float] = {}
    for report in group.run():
        losses[report.step] = report.value["loss"]
        # endregion
        if kills.get(report.step) == report.rank:
            print(
                f"step {report.step:3}: rank {report.rank} of {report.size} is killed", flush=True
            )
            with suppress(ProcessLookupError):  # the ranks may be far ahead of what is read here
                os.kill(report.value["pid"], signal.SIGKILL)
            del kills[report.step]
    assert report.world > deaths, "a rank that was killed has not been missed"
    return losses


def main() -> None:
    logging.basicConfig(format="          %(message)s")
    logging.getLogger("monarch.elastic").setLevel(logging.INFO)
    configure(preload=["torch._dynamo", "torch.distributed.fsdp"])  # once, and not in each rank
    chance = random.Random(1)
    expected = train(1, kills={})
    losses = train(RANKS, kills={step: chance.randrange(RANKS) for step in (10, 20)})
    print("step   loss      alone")
    for step in sorted(losses):
        print(
            f"{step:4}   {losses[step]:7.5f}   {expected[step]:7.5f} "
            f" {'#' * round(20 * losses[step])}"
        )
    assert losses.keys() == expected.keys()
    assert all(
        math.isclose(losses[step], expected[step], rel_tol=1e-2, abs_tol=1e-4) for step in losses
    )
    assert losses[STEPS - 5] < 0.2, "it has not learned to multiply"


if __name__ == "__main__":
    main()
