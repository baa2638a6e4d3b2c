"""The job of examples/rl on Ray, for `benchmarks.rl_beside_ray`.

The model, tasks, sandbox, batching and loss are those of the example. The rest is as one writes it
with Ray: named actors that Ray starts again, their calls tried again; weights in the object store,
owned by the driver, so that they outlive trainers; trainers in a process group of torch, which the
driver makes anew from the last weights when one of them has died.
"""

import asyncio
import os
import socket
from random import Random
from typing import Any

import ray
import torch
import torch.distributed as dist
from examples.rl.generator import SLOTS, Answer, Generator, _Request
from examples.rl.model import imitate, learned, make_cache, make_policy
from examples.rl.plan import Plan
from examples.rl.rollouts import Group
from examples.rl.tasks import END, Task, task
from examples.rl.trainer import grpo_loss
from examples.rl.verifier import Sandbox
from ray.exceptions import RayActorError, RayTaskError
from torch.nn.parallel import DistributedDataParallel

RESTARTED = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}


@ray.remote(num_cpus=0)
class Weights:
    """Has the newest weights, and tells who waits for some."""

    def __init__(self) -> None:
        self.version, self.refs = -1, list[Any]()
        self.changed = asyncio.Event()

    async def publish(self, version: int, refs: list[Any]) -> None:
        self.version, self.refs = version, refs
        self.changed.set()
        self.changed = asyncio.Event()

    async def newer(self, version: int) -> tuple[int, list[Any]]:
        while self.version <= version:
            await self.changed.wait()
        return self.version, self.refs


class _Ignored:
    def add(self, value: float) -> None: ...


@ray.remote(**RESTARTED)
class RayGenerator:
    _admit: Any = Generator._admit  # the batching asks for no more than this class has
    _next_byte: Any = Generator._next_byte
    _logits, _choose = Generator._logits, Generator._choose

    def __init__(self, plan: Plan, base: dict[str, torch.Tensor]) -> None:
        self.plan, self.policy = plan, make_policy(plan, base)
        self.cache, self.free = make_cache(plan, SLOTS), list(range(SLOTS))
        self.waiting: list[_Request] = []
        self.running: list[_Request] = []
        self.tokens = _Ignored()
        self.version, self.news = -1, list[Any]()
        self.follower = self  # where the batching looks for the version
        self.stirred = asyncio.Event()
        self.loop: asyncio.Task[None] | None = None

    async def generate(self, prompt: bytes, seeds: list[int], least: int) -> list[Answer]:
        if self.loop is None or self.loop.done():
            self.loop = asyncio.create_task(self._run())
        made = [_Request(prompt, Random(seed), least, asyncio.Future()) for seed in seeds]
        self.waiting += made
        self.stirred.set()
        return list(await asyncio.gather(*(each.done for each in made)))

    async def pid(self) -> int:
        return os.getpid()

    async def _listen(self) -> None:
        board, seen = ray.get_actor("weights"), -1
        while True:
            seen, refs = await board.newer.remote(seen)
            self.news = [seen, await refs[0]]
            self.stirred.set()

    async def _run(self) -> None:
        listening = asyncio.create_task(self._listen())
        while True:
            if listening.done():
                listening.result()
            self.stirred.clear()
            if self.news:
                (self.version, weights), self.news = self.news, []
                self.policy.load_state_dict(weights, strict=False)
                for each in self.running:
                    each.cached = 0
            self._admit()
            if not self.running:
                await self.stirred.wait()
                continue
            self._next_byte()
            await asyncio.sleep(0)


@ray.remote(**RESTARTED)
class RayVerifier:
    def __init__(self) -> None:
        self.sandbox = Sandbox()

    def check(self, asked: Task, answers: list[bytes]) -> list[float]:
        texts = [answer.removesuffix(END).decode("ascii") for answer in answers]
        found = self.sandbox.check(asked, texts) or [0.0] * len(answers)
        return [
            reward * answer.endswith(END) for reward, answer in zip(found, answers, strict=True)
        ]

    def pid(self) -> int:
        return os.getpid()


@ray.remote(**RESTARTED)
class Buffer:
    def __init__(self) -> None:
        self.groups: dict[int, Group] = {}
        self.came = asyncio.Event()

    async def add(self, number: int, group: Group) -> None:
        self.groups[number] = group
        self.came.set()

    async def sample(self, count: int, oldest: int) -> list[Group]:
        while True:
            self.groups = {n: each for n, each in self.groups.items() if each.version >= oldest}
            if len(self.groups) >= count:
                return [self.groups.pop(number) for number in sorted(self.groups)[:count]]
            self.came.clear()
            await self.came.wait()

    async def pid(self) -> int:
        return os.getpid()


@ray.remote(num_cpus=0)
class Trainer:
    def __init__(
        self, plan: Plan, rank: int, address: str, base: dict[str, torch.Tensor],
        weights: dict[str, torch.Tensor] | None, optimizer: dict[str, Any] | None,
    ) -> None:  # fmt: skip
        dist.init_process_group("gloo", f"tcp://{address}", rank=rank, world_size=plan.trainers)
        self.plan, self.rank = plan, rank
        self.policy = make_policy(plan, base)
        wanted = [each for each in self.policy.parameters() if each.requires_grad]
        self.optimizer = torch.optim.AdamW(wanted, plan.learning_rate, weight_decay=0.0)
        if weights is not None and optimizer is not None:
            self.policy.load_state_dict(weights, strict=False)
            self.optimizer.load_state_dict(optimizer)
        self.ddp = DistributedDataParallel(self.policy)

    def pid(self) -> int:
        return os.getpid()

    def step(self, groups: list[Group]) -> tuple[None, Any, Any]:
        tokens = sum(len(answer.text) for group in groups for answer in group.answers)
        mine = groups[self.rank :: self.plan.trainers]
        loss = self.plan.trainers * grpo_loss(self.ddp, mine, tokens, self.plan)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if self.rank:
            return None, None, None
        weights = {name: each.detach() for name, each in learned(self.policy).items()}
        return None, weights, self.optimizer.state_dict()


class Rollouts:
    """From a task to a group in the buffer; as many are begun as the next steps need."""

    def __init__(self, plan: Plan, generators: list[Any], verifiers: list[Any], buffer: Any):
        self.plan, self.buffer = plan, buffer
        self.generators, self.verifiers = generators, verifiers
        self.following = self.step = 0
        self.flying: dict[int, asyncio.Task[None]] = {}
        self.there: dict[int, int] = {}
        self.minding = asyncio.create_task(self._mind_buffer())

    def progress(self, step: int, used: list[Group]) -> None:
        self.step = step
        for group in used:
            self.there.pop(group.task.number, None)
        for running in (*self.flying.values(), self.minding):
            if running.done():
                running.result()
        self.fill()

    def fill(self) -> None:
        plan = self.plan
        oldest = max(0, self.step - plan.max_age)
        self.there = {number: each for number, each in self.there.items() if each >= oldest}
        while len(self.there) + len(self.flying) < plan.groups * (plan.max_age + 1):
            number, self.following = self.following, self.following + 1
            self.flying[number] = asyncio.create_task(self._roll_out(number, oldest))

    async def _roll_out(self, number: int, oldest: int) -> None:
        asked = task(number, self.plan.seed)
        seeds = [hash((0, number, each)) % 2**31 for each in range(self.plan.answers)]
        generator = self.generators[number % len(self.generators)]
        answers = await generator.generate.remote(asked.prompt, seeds, oldest)
        verifier = self.verifiers[number % len(self.verifiers)]
        rewards = await verifier.check.remote(asked, [answer.text for answer in answers])
        group = Group(asked, answers, rewards)
        await self.buffer.add.remote(number, group)
        self.there[number] = group.version
        del self.flying[number]
        self.fill()

    async def _mind_buffer(self) -> None:
        """Begin others for the groups that were in the buffer when its process ended."""
        pid = await self.buffer.pid.remote()
        while True:
            await asyncio.sleep(1.0)
            if (now := await self.buffer.pid.remote()) != pid:
                pid = now
                self.there.clear()
                self.fill()


class Job:
    """The driver: `steps` does one after another."""

    def __init__(self, plan: Plan) -> None:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        self.plan = plan
        self.base = ray.put(imitate(plan))
        self.weights = Weights.options(name="weights").remote()  # type: ignore[attr-defined]
        self.buffer = Buffer.options(name="buffer").remote()  # type: ignore[attr-defined]
        self.generators = [RayGenerator.remote(plan, self.base) for _ in range(plan.generators)]  # type: ignore[attr-defined]
        self.verifiers = [RayVerifier.remote() for _ in range(plan.verifiers)]  # type: ignore[attr-defined]
        self.state: tuple[Any, Any] = None, None  # of trainers, in the object store
        self.trainers = self._trainers()

    def _trainers(self) -> list[Any]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        weights, optimizer = self.state
        return [
            Trainer.remote(self.plan, rank, address, self.base, weights, optimizer)  # type: ignore[attr-defined]
            for rank in range(self.plan.trainers)
        ]

    def end(self) -> None:
        ray.shutdown()

    async def run(self, done: Any) -> None:
        """Do all steps; `await done(step)` after each."""
        plan = self.plan
        rollouts = Rollouts(plan, self.generators, self.verifiers, self.buffer)
        await self.weights.publish.remote(0, [self.base])
        rollouts.progress(0, [])
        for step in range(plan.steps):
            oldest = max(0, step - plan.max_age)
            groups = await self.buffer.sample.remote(plan.groups, oldest)
            while True:
                steps = [each.step.options(num_returns=3).remote(groups) for each in self.trainers]
                try:
                    await asyncio.gather(*(each[0] for each in steps))
                    break
                except (RayActorError, RayTaskError):  # one has died: the others can't go on
                    for each in self.trainers:
                        ray.kill(each)
                    self.trainers = self._trainers()
            self.state = steps[0][1], steps[0][2]
            await self.weights.publish.remote(step + 1, [self.state[0]])
            rollouts.progress(step + 1, groups)
            await done(step)
