"""Rollouts: from a task to a group of answers with rewards, in the replay buffer.

Back pressure comes from a count of groups: begun, in the buffer, or in the hands of trainers. There
are as many as the next steps need, so generators that are ahead wait, and few answers grow too old.
"""

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field

from monarch.actor import Actor, SupervisionError, concurrent_endpoint, get_meter
from monarch.queues import ReplayBuffer, ReplayState

from .generator import Answer, Generators
from .tasks import Task, task
from .verifier import Verifiers


@dataclass(frozen=True)
class Group:
    """The answers to one prompt."""

    task: Task
    answers: list[Answer]
    rewards: list[float]

    @property
    def version(self) -> int:
        """The oldest weights that chose a byte of them."""
        return min(min(answer.versions) for answer in self.answers)


@dataclass(frozen=True)
class RolloutPlan:
    groups: int = 16  # in the batch of a step
    answers: int = 8  # in a group
    max_age: int = 2  # steps that weights may be behind those that learn from what they said
    seed: int = 0
    malice: int = 0  # each task whose number is a multiple has a bad checker


@dataclass(frozen=True)
class RolloutState:
    """For a checkpoint.

    Attributes:
        following: The number of the next group.
        begun: Those that were begun, and are not in the buffer.
        there: Those in the buffer, each with its version.
        buffer: What is in it.
    """

    following: int = 0
    begun: tuple[int, ...] = ()
    there: dict[int, int] = field(default_factory=dict)
    buffer: ReplayState | None = None


Buffer = ReplayBuffer[Group]


class Rollouts(Actor):
    def __init__(
        self,
        plan: RolloutPlan,
        state: RolloutState,
        generators: Generators,
        verifiers: Verifiers,
        buffer: Buffer,
    ) -> None:
        self.plan, self.buffer = plan, buffer
        self.generators, self.verifiers = generators, verifiers
        self.following = state.following
        self.again = deque(state.begun)
        self.flying: dict[int, asyncio.Task[None]] = {}
        self.there = dict(state.there)
        # The buffer has room for all groups that there may be, so no add waits long with this.
        self.adding = asyncio.Lock()
        self.step = 0
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.seconds = {"generators": 0.0, "verifiers": 0.0, "the buffer": 0.0}
        meter = get_meter()
        self.samples = meter.create_counter("rl.samples", description="answers with a reward")
        self.phases = meter.create_histogram("rl.phase", unit="s", description="of a group")

    @concurrent_endpoint
    async def watch(self) -> None:
        """Raise what ends a rollout: by `broadcast`, it is a failure of this actor."""
        await self.failed

    @concurrent_endpoint
    async def progress(self, step: int, used: list[int]) -> None:
        """Trainers are before this step, and have used these groups."""
        self.step = step
        for number in used:
            self.there.pop(number, None)
        self._fill()

    @concurrent_endpoint
    async def state(self) -> RolloutState:
        async with self.adding:  # so that each group is in one place
            content = await self.buffer.state()
            begun = (*self.again, *self.flying)
            return RolloutState(self.following, begun, dict(self.there), content)

    @concurrent_endpoint
    async def times(self) -> dict[str, float]:
        """Seconds that groups have spent, by who had them."""
        return self.seconds

    @concurrent_endpoint
    async def buffer_was_lost(self) -> None:
        """The groups that were in it are not to be had any more."""
        self.there.clear()
        self._fill()

    def _fill(self) -> None:
        oldest = self.step - self.plan.max_age  # what is older has been dropped by the buffer
        self.there = {number: each for number, each in self.there.items() if each >= oldest}
        while len(self.there) + len(self.flying) < self.plan.groups * (self.plan.max_age + 1):
            if self.again:
                number = self.again.popleft()
            else:
                number, self.following = self.following, self.following + 1
            self.flying[number] = asyncio.create_task(self._roll_out(number))
            self.flying[number].add_done_callback(self._ended)

    def _ended(self, rollout: "asyncio.Task[None]") -> None:
        if not rollout.cancelled() and (error := rollout.exception()) and not self.failed.done():
            self.failed.set_exception(error)

    # region rollout
    async def _roll_out(self, number: int) -> None:
        asked = task(number, self.plan.seed, self.plan.malice)
        seeds = [hash((self.plan.seed, number, each)) % 2**31 for each in range(self.plan.answers)]
        began = time.perf_counter()
        answers = await self.generators.generate.call_one(
            asked.prompt, seeds, max(0, self.step - self.plan.max_age)
        )
        began = self._count("generators", began)
        rewards = await self.verifiers.check.call_one(asked, [answer.text for answer in answers])
        began = self._count("verifiers", began)
        group = Group(asked, answers, rewards)
        async with self.adding:
            await self._add(group)
            self.there[number] = group.version
            del self.flying[number]
        self._count("the buffer", began)
        self.samples.add(len(answers), {"kind": asked.kind})
        self._fill()

    async def _add(self, group: Group) -> None:
        while True:
            try:
                return await self.buffer.add(group, group.version, key=group.task.number)
            except SupervisionError:  # it is started again, empty, or has this group already
                await asyncio.sleep(0.1)

    # endregion

    def _count(self, who: str, began: float) -> float:
        now = time.perf_counter()
        self.seconds[who] += now - began
        self.phases.record(now - began, {"who": who})
        return now
