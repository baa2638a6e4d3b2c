"""A rank is killed in the middle of a step: how long no new step is done, and how many are done
again.

Four ranks train a small model by `DistributedDataParallel`, gloo, and rank 2 kills itself with
SIGKILL, once, in a step by a seed. Ours are those of `monarch.elastic`: the others go on, and the
replacement takes its state from one of them. The others write a checkpoint every 10 steps, and all
ranks load it: torchrun starts them again, and so does Ray, where living ranks that were left in
their collective did not come back within 80 s. Ranks note each step that is done, by a clock that
they share.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.end_to_end.contenders import OURS, Contender, Quantity, Row, main
from benchmarks.end_to_end.programs.rank_killed import KILLED, Plan, Task, train_from_checkpoint
from benchmarks.targets import Target
from monarch.actor import this_host
from monarch.config import configure
from monarch.elastic import ElasticGroup, World

RANKS = 4
STILL, ALL, AGAIN = "until the next new step", "until the next with all ranks", "steps done again"


def outcome(notes: Iterable[str], plan: Plan) -> dict[str, float]:
    """The numbers of a run, from what its ranks have noted.

    Raises:
        RuntimeError: No rank was killed, or a step is missing.
    """
    killed, done = [], []
    for line in notes:
        kind, *values, at = line.split()
        if kind == "killed":
            killed.append(float(at))
        else:
            step, rank, size = map(int, values)
            done.append((float(at), step, rank, size))
    times = Counter(step for _, step, rank, _ in done if rank == 0)
    if len(killed) != 1 or times.keys() != set(range(plan.steps)):
        raise RuntimeError(
            f"{len(killed)} ranks were killed, {len(times)} of {plan.steps} steps were done"
        )
    new = [(at, size) for at, step, _, size in done if step >= plan.killed_in]
    found = {STILL: min(new)[0] - killed[0], AGAIN: float(times.total() - len(times))}
    if whole := [at for at, size in new if size == RANKS]:
        found[ALL] = min(whole) - killed[0]
    return found


def measured(
    run: Callable[[Plan, int], None], steps: int, every: int, seed: int
) -> dict[str, float]:
    """What `run` makes of a plan, and of a checkpoint every so many steps."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(folder, steps, steps // 4 + Random(seed).randrange(steps // 4))
        plan.notes.touch()
        run(plan, every)
        return outcome(plan.notes.read_text().splitlines(), plan)


class Trainer(Task):
    def train(self, world: World) -> None:
        from torch.nn.parallel import DistributedDataParallel

        world.restore(model=self.model, optimizer=self.optimizer)
        parallel = DistributedDataParallel(self.model)
        for step in world.steps(self.plan.steps):
            self.do(step, parallel, world.rank, world.size)


def run_elastic(plan: Plan, every: int) -> None:
    configure(preload=["torch", "torch._dynamo"])
    for _ in ElasticGroup(this_host(), partial(Trainer, plan), ranks=RANKS).run():
        pass


def run_torchrun(plan: Plan, every: int) -> None:
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={RANKS}",
    ]
    # By default restarted ranks share a store with those before them, whose addresses gloo then
    # finds there: none connects.
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    program = [*torchrun, "--max-restarts=1", "-m", f"{__package__}.programs.rank_killed_torchrun"]
    # What it starts carries the mark of this turn, by which `contenders.turn` ends all of it,
    # orphans as well.
    subprocess.run([*program, *map(str, plan), str(every)], stdout=sys.stderr, check=True)


class RayTrainer:
    def __init__(self, rank: int, plan: Plan) -> None:
        self.rank, self.task = rank, Task(plan)

    def ready(self) -> None:
        pass

    def train(self, meeting: str, every: int) -> None:
        import torch.distributed as dist

        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=self.rank, world_size=RANKS
        )
        train_from_checkpoint(self.task, every)


def run_ray(plan: Plan, every: int) -> None:
    ray: Any = importlib.import_module("ray")
    ray.init(num_cpus=RANKS, include_dashboard=False, logging_level="error", log_to_driver=False)
    actor = ray.remote(num_cpus=1, max_restarts=1)(RayTrainer)
    trainers = [actor.remote(rank, plan) for rank in range(RANKS)]
    for attempt in range(2):
        # A call that may be tried again waits until an actor is there that starts again.
        ray.get([trainer.ready.options(max_task_retries=-1).remote() for trainer in trainers])
        meeting = str(Path(plan.folder, f"meeting{attempt}"))
        trainings = [trainer.train.remote(meeting, every) for trainer in trainers]
        (first, *_), _ = ray.wait(trainings)
        try:
            ray.get(first)
        except ray.exceptions.RayError:
            # Calls of living ranks, which are in a collective, did not return: start them again,
            # too.
            for rank, trainer in enumerate(trainers):
                if rank != KILLED:
                    ray.kill(trainer, no_restart=False)
        else:
            ray.get(trainings)
            break
    ray.shutdown()


def contender(run: Callable[[Plan, int], None], *needs: str) -> Contender:
    return Contender(partial(measured, run), ("torch", *needs))


TARGET = Target(5, 20)
ROW = Row(
    name="rank_killed",
    title="A rank of 4 is killed",
    contenders={
        OURS: contender(run_elastic),
        "torchrun": contender(run_torchrun),
        "Ray": contender(run_ray, "ray"),
    },
    quantities={
        STILL: Quantity("s", {"torchrun": TARGET, "Ray": TARGET}),
        ALL: Quantity("s"),
        AGAIN: Quantity("steps"),
    },
    settings={"steps": 200, "every": 10, "seed": 1},
    limit=300.0,
)


if __name__ == "__main__":
    main(ROW)
