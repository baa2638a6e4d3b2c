"""Training that goes on when ranks are killed: `DistributedDataParallel` over ranks that are
replaced, and no step is lost.

The script kills a rank twice, with SIGKILL, in the middle of the training. The others go on without
it, within milliseconds; its replacement takes weights and the optimizer's state from the memory of
a living rank. No file is written. The losses are those of ranks that nobody disturbs.

    python examples/elastic_ddp.py

What to look for:

* ``Training``                 model, optimizer and loop as in any script; `world` is what is new
* ``world.size / BATCH``       so that the gradient is the mean over the batch, however many ranks share it
* ``group.run()``              the program: reports as they come, whatever happens to the ranks
"""

import logging
import math
import os
import random
import signal
from contextlib import suppress

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from monarch.actor import this_host
from monarch.config import configure
from monarch.elastic import Batches, ElasticGroup, World

RANKS, STEPS, SAMPLES, BATCH = 4, 200, 480, 48


# region training
class Training:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02)
        self.inputs = torch.rand(SAMPLES, 2) * 4 - 2
        self.targets = self.inputs.prod(1, keepdim=True)
        self.batches = Batches(SAMPLES, BATCH)

    def train(self, world: World) -> None:  # begins again whenever the ranks have changed
        # from the memory of a living rank
        world.restore(model=self.model, optimizer=self.optimizer)
        model = DistributedDataParallel(self.model)
        for step in world.steps(STEPS):
            mine = self.batches.indices(step, world)
            loss = (
                (model(self.inputs[mine]) - self.targets[mine]).square().sum() * world.size / BATCH
            )
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if step % 10 == 0:
                world.report({"loss": self.loss(), "pid": os.getpid()})

    # endregion

    def loss(self) -> float:
        """Over all samples."""
        with torch.no_grad():
            return float((self.model(self.inputs) - self.targets).square().mean())


def train(kills: dict[int, int]) -> dict[int, float]:
    """The losses by step, of a run in which some ranks are killed: at which step which."""
    # region group
    group = ElasticGroup(this_host(), Training, ranks=RANKS, min_ranks=2)
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
    assert not kills
    return losses


def main() -> None:
    logging.basicConfig(format="          %(message)s")
    logging.getLogger("monarch.elastic").setLevel(logging.INFO)
    # which DDP and optimizers import: once, and not in each rank
    configure(preload=["torch._dynamo"])
    chance = random.Random(1)
    expected = train(kills={})
    losses = train(kills={step: chance.randrange(2) for step in (50, 120)})
    print("step   loss      undisturbed")
    for step in sorted(losses)[::4]:
        print(
            f"{step:4}   {losses[step]:7.5f}   {expected[step]:7.5f} "
            f" {'#' * round(20 * losses[step])}"
        )
    assert losses.keys() == expected.keys()
    assert all(
        math.isclose(losses[step], expected[step], rel_tol=1e-2, abs_tol=1e-4) for step in losses
    )
    assert losses[STEPS - 10] < 0.1, "it has not learned to multiply"


if __name__ == "__main__":
    main()
