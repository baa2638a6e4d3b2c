"""Training of which a rank is killed once, in the middle of a step: what its ranks do, under each
of the launchers.
"""

from __future__ import annotations

import os
import signal
import time
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

KILLED = 2  # the rank
BATCH, WIDTH = 96, 512


class Plan(NamedTuple):
    """How many steps, and in which of them a rank is killed.

    Ranks note in `folder` what they have done.
    """

    folder: str
    steps: int
    killed_in: int

    @property
    def notes(self) -> Path:
        return Path(self.folder, "notes")

    def note(self, *values: object) -> None:
        """A line with the time, by a clock that processes share; in one write, as they share the
        file as well.
        """
        line = f"{' '.join(map(str, values))} {time.monotonic()}\n"
        with open(self.notes, "ab", buffering=0) as file:
            file.write(line.encode())


class Task:
    """A model, and a step of its training: the same for any number of ranks, which share the
    batch.
    """

    def __init__(self, plan: Plan) -> None:
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.plan = plan
        widths = [WIDTH, WIDTH, WIDTH, 1]
        layers = [
            each for ends in pairwise(widths) for each in (torch.nn.Linear(*ends), torch.nn.Tanh())
        ]
        self.model = torch.nn.Sequential(*layers[:-1])
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)

    def do(self, step: int, parallel: Any, rank: int, size: int) -> None:
        import torch

        inputs = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(step))
        mine = inputs[rank * BATCH // size : (rank + 1) * BATCH // size]
        loss = (parallel(mine) - mine.mean(1, keepdim=True).sin()).square().sum() * size / BATCH
        if (
            rank == KILLED
            and step == self.plan.killed_in
            and "killed" not in self.plan.notes.read_text()
        ):
            self.plan.note("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.plan.note("done", step, rank, size)


def train_from_checkpoint(task: Task, every: int) -> None:
    """Train as a rank of the default process group: all begin with the last checkpoint, which rank
    0 writes.
    """
    import torch
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    kept, begin = Path(task.plan.folder, "checkpoint"), 0
    if kept.exists():
        state = torch.load(kept)
        task.model.load_state_dict(state["model"])
        task.optimizer.load_state_dict(state["optimizer"])
        begin = state["step"]
    parallel = torch.nn.parallel.DistributedDataParallel(task.model)
    for step in range(begin, task.plan.steps):
        task.do(step, parallel, rank, size)
        if rank == 0 and (step + 1) % every == 0:
            state = {
                "model": task.model.state_dict(),
                "optimizer": task.optimizer.state_dict(),
                "step": step + 1,
            }
            torch.save(state, kept.with_suffix(".new"))
            kept.with_suffix(".new").replace(kept)
    dist.barrier()
    dist.destroy_process_group()
