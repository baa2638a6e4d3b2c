"""Training with distributed tensors that goes on when ranks are killed: the living ranks stay the
processes that they are, and no file is written.

The script kills two of four ranks, one after the other, with SIGKILL, in the middle of the
training. A restart strategy starts each again under the same handle. Every few steps the ranks copy
weights and optimizer, each in its own memory. A new mesh over the same procs takes that copy from a
living rank, and the few steps since then are done again. The losses are those of ranks that nobody
disturbs.

    python examples/elastic_tensors.py

What to look for:

* ``OneForOne``                what starts a dead rank again, and no other
* ``keep``                     copies on the ranks: nothing comes to the program
* ``spawn_tensor_engine``      a new mesh over the procs; living ranks still have the old tensors
* ``to_mesh``                  from the memory of one rank to all ranks of the new mesh
"""

import logging
import math
import os
import random
import signal
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from monarch import DeviceMesh, Tensor, inspect, reduce, reduce_, slice_mesh
from monarch.actor import Actor, SupervisionError, endpoint, this_host
from monarch.config import configure
from monarch.supervision import OneForOne
from monarch.tensor_engine import RemoteException, spawn_tensor_engine

RANKS, STEPS, KEEP, SAMPLES, BATCH = 4, 80, 10, 480, 48


class Pids(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Training:
    """A model and its optimizer on all ranks of a mesh, which share each batch."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.inputs = torch.rand(SAMPLES, 2) * 4 - 2
        self.targets = self.inputs.prod(1, keepdim=True)

    def step(self, number: int) -> None:
        batch = torch.arange(number * BATCH, (number + 1) * BATCH) % SAMPLES
        mine = batch.view(RANKS, -1).index_select(0, self.mesh.rank("dp").view(1))[0]
        self.optimizer.zero_grad()
        torch.autograd.backward(self.error(mine))
        for parameter in self.model.parameters():
            reduce_(parameter.grad, "dp", "avg")
        self.optimizer.step()

    def error(self, samples: torch.Tensor) -> torch.Tensor:
        difference: torch.Tensor = self.model(self.inputs[samples]) - self.targets[samples]
        return difference.square().mean()

    # region keep
    def state(self) -> Any:
        return self.model.state_dict(), self.optimizer.state_dict()

    def copied(self) -> Any:
        """What each rank has, once more in its own memory."""
        return tree_map_only(torch.Tensor, torch.clone, self.state())

    def take(self, state: Any, rank: int) -> None:
        """Give all ranks what one rank of another mesh has."""

        def moved(value: Tensor) -> Any:
            return slice_mesh(value, dp=rank).to_mesh(self.mesh)

        model, optimizer = tree_map_only(Tensor, moved, state)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)

    # endregion

    def loss(self) -> float:
        """Over all samples, by all ranks: it fails if one of them has lost its weights."""
        with torch.no_grad():
            mean = reduce(self.error(torch.arange(SAMPLES)), "dp", "avg")
            return float(inspect(mean))


class Kept(NamedTuple):
    """What the ranks of a mesh had before a step, in their own memory."""

    step: int
    state: Any
    pids: list[int]


def train(kills: dict[int, int]) -> dict[int, float]:
    """The losses by step, of a run in which some ranks are killed: in which step which."""
    procs = this_host().spawn_procs({"dp": RANKS}, restart=OneForOne(max_restarts=3, within=60))
    ranks = procs.spawn("pids", Pids)
    # region train
    losses: dict[int, float] = {}
    kept: Kept | None = None
    while STEPS not in losses:
        # waits for a rank that starts again
        pids = ranks.pid.options(retries=3).call().get().values()
        mesh = spawn_tensor_engine(procs)
        try:
            with mesh.activate():
                training = Training(mesh)
                if kept is not None:
                    alive = [rank for rank in range(RANKS) if pids[rank] == kept.pids[rank]]
                    training.take(kept.state, alive[0])
                    print(f"step {kept.step:3}: goes on, with what rank {alive[0]} has", flush=True)
                for step in range(kept.step if kept else 0, STEPS + 1):
                    if step % KEEP == 0:
                        copy = training.copied()
                        losses[step] = training.loss()  # by then all ranks have made the copy
                        kept = Kept(step, copy, pids)
                    training.step(step)
                    # endregion
                    if step in kills:
                        rank = kills.pop(step)
                        print(f"step {step:3}: rank {rank} is killed", flush=True)
                        os.kill(pids[rank], signal.SIGKILL)
                    # region train
        except (SupervisionError, RemoteException):
            # the second where a rank lost its connection to the dead one, and was heard first
            assert kept is not None, "no rank has a copy yet"
    # endregion
    procs.stop().get()
    return losses


def main() -> None:
    logging.getLogger("monarch.supervision").setLevel(logging.ERROR)  # restarts are no surprise
    configure(preload=["torch._dynamo"])  # which optimizers import: once, and not in each rank
    chance = random.Random(1)
    expected = train(kills={})
    losses = train(kills={step: chance.randrange(RANKS) for step in (25, 54)})
    print("step   loss      undisturbed")
    for step in sorted(losses):
        print(
            f"{step:4}   {losses[step]:7.5f}   {expected[step]:7.5f} "
            f" {'#' * round(20 * losses[step])}"
        )
    assert losses.keys() == expected.keys()
    assert all(math.isclose(losses[step], expected[step], rel_tol=1e-5) for step in losses)
    assert losses[STEPS] < 0.1, "it has not learned to multiply"


if __name__ == "__main__":
    main()
