"""The job of `benchmarks.rl_ray` on Monarch, for `benchmarks.rl_beside_ray`: neither does more.

The model, tasks, sandbox, batching and loss are those of examples/rl, on both sides. The rest is as
one writes it with Monarch: services that start replicas again and try calls again, a replay buffer
in a process that is started again, an elastic group of trainers, whose weights generators follow.
`examples.rl` itself does more than that: checkpoints, metrics, adapters, sharded weights, clusters.
"""

import asyncio
import os
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import torch
from examples.rl.generator import SLOTS, Answer, Generator, _Request
from examples.rl.model import imitate, learned, make_cache, make_policy
from examples.rl.plan import Plan
from examples.rl.rollouts import Group
from examples.rl.tasks import END, Task, task
from examples.rl.trainer import grpo_loss
from examples.rl.verifier import Sandbox
from torch.nn.parallel import DistributedDataParallel

from monarch.actor import (
    Actor,
    SupervisionError,
    concurrent_endpoint,
    endpoint,
    this_host,
    this_proc,
)
from monarch.config import configure
from monarch.elastic import ElasticGroup, StateBoard, StateFollower, StatePublisher, World
from monarch.queues import ReplayBuffer
from monarch.service import Service
from monarch.supervision import OneForOne

Buffer = ReplayBuffer[Group]


class _Ignored:
    def add(self, value: float) -> None: ...


class MonarchGenerator(Actor):
    _admit: Any = Generator._admit  # the batching asks for no more than this class has
    _next_byte: Any = Generator._next_byte
    _logits, _choose = Generator._logits, Generator._choose

    def __init__(self, plan: Plan, base: dict[str, torch.Tensor], board: StateBoard) -> None:
        self.plan, self.policy = plan, make_policy(plan, base)
        self.cache, self.free = make_cache(plan, SLOTS), list(range(SLOTS))
        self.waiting: list[_Request] = []
        self.running: list[_Request] = []
        self.tokens = _Ignored()
        self.follower = StateFollower(board, learned(self.policy))
        self.loop: asyncio.Task[None] | None = None

    @concurrent_endpoint
    async def generate(self, prompt: bytes, seeds: list[int], least: int) -> list[Answer]:
        if self.loop is None or self.loop.done():
            self.loop = asyncio.create_task(self._run())
        made = [_Request(prompt, Random(seed), least, asyncio.Future()) for seed in seeds]
        self.waiting += made
        self.follower.changed.set()
        return list(await asyncio.gather(*(each.done for each in made)))

    @concurrent_endpoint
    async def pid(self) -> int:
        return os.getpid()

    async def _run(self) -> None:
        while True:
            if self.follower.changed.is_set() and await self.follower.pull():
                for each in self.running:
                    each.cached = 0
            self._admit()
            if not self.running:
                await self.follower.changed.wait()
                continue
            self._next_byte()
            await asyncio.sleep(0)


class Verifier(Actor):
    def __init__(self) -> None:
        self.sandbox = Sandbox()

    @endpoint
    def check(self, asked: Task, answers: list[bytes]) -> list[float]:
        texts = [answer.removesuffix(END).decode("ascii") for answer in answers]
        found = self.sandbox.check(asked, texts) or [0.0] * len(answers)
        return [
            reward * answer.endswith(END) for reward, answer in zip(found, answers, strict=True)
        ]

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Training:
    def __init__(
        self, plan: Plan, base: dict[str, torch.Tensor], buffer: Buffer, board: StateBoard,
        rollouts: "Rollouts",
    ) -> None:  # fmt: skip
        self.plan, self.base = plan, base
        self.buffer, self.board, self.rollouts = buffer, board, rollouts

    def train(self, world: World) -> None:
        plan, policy = self.plan, make_policy(self.plan, self.base)
        wanted = [each for each in policy.parameters() if each.requires_grad]
        optimizer = torch.optim.AdamW(wanted, plan.learning_rate, weight_decay=0.0)
        world.restore(model=policy, optimizer=optimizer)
        publisher = StatePublisher(self.board, learned(policy), world=world)
        ddp, pids = DistributedDataParallel(policy), world.gather(os.getpid())
        if world.rank == 0:
            self.rollouts.progress.broadcast(world.step, [])
        for step in world.steps(plan.steps):
            groups = world.gather(self._batch(world, step) if world.rank == 0 else [])[0]
            tokens = sum(len(answer.text) for group in groups for answer in group.answers)
            loss = world.size * grpo_loss(ddp, groups[world.part(len(groups))], tokens, plan)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            with publisher.writing():
                optimizer.step()
            if world.rank == 0:
                used = [group.task.number for group in groups]
                self.rollouts.progress.broadcast(step + 1, used)
                world.report(pids)

    def _batch(self, world: World, step: int) -> list[Group]:
        sample = partial(self.buffer.sample, self.plan.groups, step, order="oldest", batch=step)
        return world.ask(sample)


class Rollouts(Actor):
    """From a task to a group in the buffer; as many are begun as the next steps need."""

    def __init__(
        self, plan: Plan, generators: Service[MonarchGenerator], verifiers: Service[Verifier],
        buffer: Buffer,
    ) -> None:  # fmt: skip
        self.plan, self.buffer = plan, buffer
        self.generators, self.verifiers = generators, verifiers
        self.following = self.step = 0
        self.flying: dict[int, tuple[asyncio.Task[None], int]] = {}
        self.there: dict[int, int] = {}

    @concurrent_endpoint
    async def progress(self, step: int, used: list[int]) -> None:
        self.step = step
        for number in used:
            self.there.pop(number, None)
        for number, (running, oldest) in list(self.flying.items()):
            if running.done():
                running.result()
            if oldest > step:  # all trainers were lost, and begin again: no weights are so new
                running.cancel()
                del self.flying[number]
        self._fill()

    def _fill(self) -> None:
        plan = self.plan
        oldest = max(0, self.step - plan.max_age)
        self.there = {number: each for number, each in self.there.items() if each >= oldest}
        while len(self.there) + len(self.flying) < plan.groups * (plan.max_age + 1):
            number, self.following = self.following, self.following + 1
            self.flying[number] = asyncio.create_task(self._roll_out(number, oldest)), oldest

    async def _roll_out(self, number: int, oldest: int) -> None:
        asked = task(number, self.plan.seed)
        seeds = [hash((0, number, each)) % 2**31 for each in range(self.plan.answers)]
        answers = await self.generators.generate.call_one(asked.prompt, seeds, oldest)
        rewards = await self.verifiers.check.call_one(asked, [each.text for each in answers])
        group = Group(asked, answers, rewards)
        while number in self.flying:
            with suppress(SupervisionError):  # the buffer is started again
                await self.buffer.add(group, group.version, key=number)
                self.there[number] = group.version
                del self.flying[number]
        self._fill()

    @concurrent_endpoint
    async def mind_buffer(self) -> None:
        """Begin others for the groups that were in the buffer when its process ended."""
        restarts = 0
        while True:
            await asyncio.sleep(1.0)
            with suppress(SupervisionError):
                if (now := (await self.buffer.statistics()).restarts) != restarts:
                    restarts = now
                    self.there.clear()
                    self._fill()


class Job:
    """The program: `trainers.run()` does one step after another."""

    def __init__(self, plan: Plan) -> None:
        configure(preload=["torch", "torch._dynamo"])
        base, host = imitate(plan), this_host()
        board = this_proc().spawn("board", StateBoard)
        self.store = host.spawn_procs(restart=OneForOne())
        room = plan.groups * (plan.max_age + 3)
        buffer = Buffer(self.store, room, consume=True, max_age=plan.max_age)
        service = partial(Service, host, idempotent=True, max_restarts=20)
        generators = service(MonarchGenerator, (plan, base, board), replicas=plan.generators)
        self.generators: Service[MonarchGenerator] = generators
        self.verifiers: Service[Verifier] = service(Verifier, replicas=plan.verifiers)
        self.rollouts = this_proc().spawn(
            "rollouts", Rollouts, plan, self.generators, self.verifiers, buffer
        )
        self.rollouts.progress.broadcast(0, [])
        self.rollouts.mind_buffer.broadcast()
        training = partial(Training, plan, base, buffer, board, self.rollouts)
        self.trainers = ElasticGroup(host, training, ranks=plan.trainers)

    def end(self) -> None:
        self.rollouts.stop().get()
        self.generators.stop(drain=0).get()
        self.verifiers.stop(drain=0).get()
