"""Data-parallel training that survives the death of a trainer: all ranks start again and go on from
the last checkpoint.

Four trainers have a model in torch's `DistributedDataParallel`. One of them dies for real, by
SIGKILL, in the middle of a backward pass, where the others wait for its gradients. The call says
who died. The strategy `AllForOne` then starts every process of the mesh again, and the trainers on
them; they get a new process group. The handle stays good.

    python examples/surviving_trainer.py
"""

import logging
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel

from monarch.actor import (
    Actor,
    ActorError,
    ProcMesh,
    SupervisionError,
    current_rank,
    endpoint,
    this_host,
)
from monarch.config import configure
from monarch.supervision import AllForOne, incarnations

WORLD = 4
STEPS = 20
CHECKPOINT_EVERY = 5
KILL_AT = 13  # between two checkpoints, so that some steps must be done again
VICTIM = 2
LEARNING_RATE = 0.1
PAUSE_S = 0.05


class LostState(Exception):
    """The trainer is not where the caller believes it to be: it has started again meanwhile."""


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)  # all ranks begin alike
    return torch.nn.Linear(4, 1)


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The data of a rank in a step, which is the same when the step is done again."""
    inputs = torch.randn(16, 4, generator=torch.Generator().manual_seed(step * WORLD + rank))
    return inputs, inputs.sum(1, keepdim=True)


def die(_: torch.Tensor) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Trainer(Actor):
    """One replica. It has no model before `setup`, so none after it has started again."""

    def __init__(self, folder: Path) -> None:
        torch.set_num_threads(1)
        self.rank = current_rank().rank
        self.folder = folder
        self.step = -1

    @endpoint
    def setup(self, group: Any, step: int) -> None:
        """Join the group and take the state of the checkpoint of a step; step 0 has none."""
        self.model = DistributedDataParallel(make_model(), process_group=group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE, momentum=0.5)
        if step:
            saved = torch.load(self.folder / f"{step}.pt")
            self.model.module.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
        self.step = step

    @endpoint
    def train(self, step: int, victim: int | None = None) -> float:
        """Do this step; returns the loss of this rank."""
        self.check(step)
        if victim == self.rank:  # the weight's gradient is there, the bias's is yet to come
            self.model.module.weight.register_hook(die)
        inputs, targets = batch(step, self.rank)
        loss = mse_loss(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()  # averages the gradients of all ranks: a collective
        self.optimizer.step()
        self.step += 1
        return loss.item()

    @endpoint
    def save(self, step: int) -> None:
        """Write a checkpoint; rank 0 does, as all have the same weights."""
        self.check(step)
        if self.rank == 0:
            state = {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
            }
            unfinished = self.folder / "unfinished"
            torch.save(state, unfinished)
            # all or nothing, should this process die now
            unfinished.replace(self.folder / f"{step}.pt")

    @endpoint
    def weights(self, step: int) -> torch.Tensor:
        self.check(step)
        return self.model.module.weight.detach()

    def check(self, step: int) -> None:
        if step != self.step:
            raise LostState(f"at step {self.step}, not {step}")


def train(procs: ProcMesh, trainers: Trainer) -> tuple[list[int], list[int], list[torch.Tensor]]:
    """Every step in the order in which they were done, who died, and the weights of each rank.

    Each call says which step it means. So it does not matter whether a failure shows as a call that
    fails, or only in the next call, to a trainer that is new; nor whether the others had done the
    step when one died.
    """
    killed = ready = False
    done: list[int] = []
    died: list[int] = []
    step = checkpoint = 0
    while True:
        try:
            if not ready:
                with procs.activate() as mesh:  # groups do not outlive a restart
                    trainers.setup.call(mesh.process_group("gpus"), checkpoint).get()
                ready, step = True, checkpoint
                print(f"step {step:2}: all trainers are in the group", flush=True)
            if step == STEPS:
                return done, died, trainers.weights.call(step).get().values()
            victim = VICTIM if step == KILL_AT and not killed else None
            killed = killed or victim is not None
            losses = trainers.train.call(step, victim).get().values()
            done.append(step)
            step += 1
            if step % CHECKPOINT_EVERY == 0:
                trainers.save.call(step).get()
                checkpoint = step  # only now: it is written
                print(f"step {step:2}: saved, loss {sum(losses) / WORLD:.3f}", flush=True)
        except (SupervisionError, ActorError) as error:
            if ready and isinstance(error, SupervisionError) and error.failure is not None:
                lost = error.failure  # the death, though neighbours in the collective failed first
                died += lost.ranks
                print(f"step {step:2}: {lost.mesh_name}{lost.ranks} was {lost.cause}", flush=True)
            ready = False
            time.sleep(PAUSE_S)  # the old trainers may still be ending


def undisturbed() -> torch.Tensor:
    """The weights of the same training in one process in which nothing dies."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, momentum=0.5)
    for step in range(STEPS):
        data = [batch(step, rank) for rank in range(WORLD)]
        inputs, targets = (torch.cat(parts) for parts in zip(*data, strict=True))
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return model.weight.detach()  # type: ignore[return-value]


def main() -> None:
    configure(preload=["torch._dynamo"])  # which DDP imports: once, not on each rank
    # a restart is a warning there, which says why
    logging.getLogger("monarch.supervision").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        strategy = AllForOne(max_restarts=3, within=600)
        procs = this_host().spawn_procs({"gpus": WORLD}, name="gpus", restart=strategy)
        trainers = procs.spawn("trainers", Trainer, Path(folder))
        done, died, weights = train(procs, trainers)
        restarts = incarnations(trainers).get().values()
        procs.stop().get()

    again = sorted(step for step in set(done) if done.count(step) > 1)
    print(f"all {STEPS} steps done, {again} twice; incarnations {restarts}")
    assert died == [VICTIM]
    assert set(done) == set(range(STEPS))
    assert again == list(range(KILL_AT - KILL_AT % CHECKPOINT_EVERY, KILL_AT))
    assert all(restart > 0 for restart in restarts)
    expected = undisturbed()
    for weight in weights:  # as if nothing had happened
        assert torch.allclose(weight, expected, atol=1e-5)


if __name__ == "__main__":
    main()
