"""Reinforcement learning: `python -m benchmarks.end_to_end.grpo --steps 250`, from the repository's
root.

The program is examples/grpo.py: two trainers, two generators, a judge and a replay buffer, all at
the same time. For Ray it is written with actors and the object store, and has the example's model,
loss, problems and rewards. The clock runs from the first step to the last, when all processes are
ready.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import random
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.end_to_end.contenders import OURS, ROOT, Contender, Quantity, Row, main
from benchmarks.targets import Target


def _example() -> Any:
    return importlib.import_module("grpo")


def _numbers(reports: list[list[Any]], seconds: float) -> dict[str, float]:
    samples = len(reports) * len(reports[0]) * _example().PROBLEMS * _example().GROUP
    right = fmean(report.reward for step in reports[-20:] for report in step)
    return {"samples learned": samples / seconds, "right answers in the last 20 steps": 100 * right}


def with_monarch(steps: int) -> dict[str, float]:
    sys.path.insert(0, str(ROOT / "examples"))
    return _numbers(*asyncio.run(_example().run(steps)))


class RayBuffer:
    """Holds batches as `ReplayBuffer` does in the example: bounded, without those that are too
    old.
    """

    def __init__(self, capacity: int, max_age: int) -> None:
        self.batches: deque[Any] = deque()
        self.capacity, self.max_age = capacity, max_age
        self.changed = asyncio.Condition()

    async def add(self, batch: Any) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.batches) < self.capacity)
            self.batches.append(batch)
            self.changed.notify_all()

    async def sample(self, version: int) -> Any:
        async with self.changed:
            while True:
                await self.changed.wait_for(lambda: self.batches)
                index = random.randrange(len(self.batches))
                batch = self.batches[index]
                del self.batches[index]
                self.changed.notify_all()
                if batch.version >= version - self.max_age:
                    return batch


class RayJudge:
    def score(self, texts: list[str]) -> list[float]:
        return [_example().reward(text) for text in texts]


class RayGenerator:
    def __init__(self, judge: Any, buffer: Any) -> None:
        self.policy = _example().new_policy()
        self.judge, self.buffer = judge, buffer

    def ready(self) -> None:
        pass

    def roll_out(self, prompts: list[str], weights: tuple[int, Any]) -> None:
        import ray
        import torch

        version, vector = weights
        torch.nn.utils.vector_to_parameters(torch.tensor(vector), self.policy.parameters())
        batch = _example().answers(self.policy, prompts, version)
        batch.rewards = torch.tensor(ray.get(self.judge.score.remote(batch.texts())))
        ray.get(self.buffer.add.remote(batch))


class RayTrainer:
    def __init__(self, rank: int, world: int, meeting: str, buffer: Any) -> None:
        import torch

        self.policy = _example().new_policy()
        torch.distributed.init_process_group(
            "gloo", init_method=meeting, rank=rank, world_size=world
        )
        self.parallel = torch.nn.parallel.DistributedDataParallel(self.policy)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), _example().LEARNING_RATE)
        self.buffer, self.steps = buffer, 0

    def weights(self) -> tuple[int, Any]:
        """One array: it is in the object store once, and readers map it."""
        import torch

        vector = torch.nn.utils.parameters_to_vector(self.policy.parameters())
        return self.steps, vector.detach().numpy()

    def step(self) -> tuple[Any, tuple[int, Any]]:
        import ray

        batch = ray.get(self.buffer.sample.remote(self.steps))
        self.optimizer.zero_grad()
        _example().grpo_loss(self.parallel, batch).backward()
        self.optimizer.step()
        self.steps += 1
        report = _example().Report(float(batch.rewards.mean()), self.steps - 1 - batch.version)
        return report, self.weights()


async def run_ray(ray: Any, steps: int, meeting: str) -> tuple[list[list[Any]], float]:
    """As `run` of the example. The script has references to weights; it never fetches them."""
    example = _example()
    buffer = ray.remote(RayBuffer).remote(example.TRAINERS * 2, example.MAX_AGE)
    judge = ray.remote(RayJudge).remote()
    generators = [ray.remote(RayGenerator).remote(judge, buffer) for _ in range(example.GENERATORS)]
    made = ray.remote(RayTrainer)
    trainers = [
        made.remote(rank, example.TRAINERS, meeting, buffer) for rank in range(example.TRAINERS)
    ]
    newest, _ = [trainer.weights.remote() for trainer in trainers]
    await asyncio.gather(newest, *(generator.ready.remote() for generator in generators))

    async def ask(generator: Any, seed: int) -> None:
        rng = random.Random(seed)
        while True:
            await generator.roll_out.remote(example.problems(rng), newest)

    async def learn() -> list[list[Any]]:
        nonlocal newest
        reports = []
        for _ in range(steps):
            answers = [trainer.step.options(num_returns=2).remote() for trainer in trainers]
            reports.append(await asyncio.gather(*(report for report, _ in answers)))
            newest = answers[0][1]
        return reports

    begun = time.perf_counter()
    learning = asyncio.create_task(learn())
    # Two for each generator, so that it has its next problems when it has answered.
    asking = [
        asyncio.create_task(ask(generator, seed)) for seed, generator in enumerate(generators * 2)
    ]
    done, _ = await asyncio.wait([learning, *asking], return_when=asyncio.FIRST_COMPLETED)
    seconds = time.perf_counter() - begun
    for task in asking:
        task.cancel()
    for finished in done:
        finished.result()
    return learning.result(), seconds


def with_ray(steps: int) -> dict[str, float]:
    sys.path.insert(0, str(ROOT / "examples"))
    # of workers as well
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "examples"), str(ROOT)])
    ray: Any = importlib.import_module("ray")
    ray.init(include_dashboard=False, logging_level="error", log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        found = _numbers(*asyncio.run(run_ray(ray, steps, f"file://{Path(folder) / 'meeting'}")))
    ray.shutdown()
    return found


ROW = Row(
    "grpo",
    "A GRPO loop: 2 trainers, 2 generators, a judge, a replay buffer",
    {OURS: Contender(with_monarch, ("torch",)), "Ray": Contender(with_ray, ("torch", "ray"))},
    {
        "samples learned": Quantity("/s", {"Ray": Target(1.5, 3)}, "higher"),
        "right answers in the last 20 steps": Quantity("%", better="higher"),
    },
    {"steps": 100},
)

if __name__ == "__main__":
    main(ROW)
