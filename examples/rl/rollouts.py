"""Rollouts: from a task to a group of answers with rewards, in the replay buffer.

Back pressure comes from a count of groups: begun, in the buffer, or in the hands of trainers. There
are as many as the next steps need, so generators that are ahead wait, and few answers grow too old.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from monarch.actor import Actor, SupervisionError, concurrent_endpoint, get_meter
from monarch.queues import ReplayBuffer, ReplayState
from monarch.service import Service

from .generator import Answer, Generator
from .plan import Plan
from .tasks import Task, task
from .verifier import Verifier


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
class RolloutState:
    """For a checkpoint.

    Attributes:
        following: The number of the next group.
        begun: Those that were begun, and are not in the buffer.
        there: Those in the buffer, each with its version.
        expired: How often each of them has grown too old, and was begun again.
        buffer: What is in it.
    """

    following: int = 0
    begun: tuple[int, ...] = ()
    there: dict[int, int] = field(default_factory=dict)
    expired: Counter[int] = field(default_factory=Counter)
    buffer: ReplayState | None = None


Buffer = ReplayBuffer[Group]
Writers = Service[Generator]
Judges = Service[Verifier]


class Rollouts(Actor):
    def __init__(
        self, plan: Plan, state: RolloutState, writers: Writers, judges: Judges, buffer: Buffer
    ) -> None:
        self.plan, self.buffer = plan, buffer
        self.writers, self.judges = writers, judges
        self.following = state.following
        self.again = set(state.begun)
        # on their way, each with the oldest weights that may begin it
        self.flying: dict[int, tuple[asyncio.Task[None], int]] = {}
        self.there, self.expired = dict(state.there), Counter(state.expired)
        self.step = 0
        self.failure: BaseException | None = None
        self.samples = get_meter().create_counter("rl.samples", description="with a reward")
        self.groups = get_meter().create_gauge("rl.groups", description="begun, or in the buffer")

    @concurrent_endpoint
    async def mind(self) -> None:
        """Begin others for groups that end with the buffer's process, until a rollout fails.

        By `broadcast`, that is a failure of this actor.
        """
        restarts = 0
        while True:
            await asyncio.sleep(1.0)
            if self.failure is not None:
                raise self.failure
            with suppress(SupervisionError):
                if (found := (await self.buffer.statistics()).restarts) > restarts:
                    restarts = found
                    self.there.clear()
                    self._fill()

    @concurrent_endpoint
    async def progress(self, step: int, used: list[int]) -> None:
        """Trainers are before this step, and have used these groups."""
        self.step = step
        for number in used:
            self.there.pop(number, None)
            # this may come before the answer of `add`
            self.flying.pop(number, None)
            self.again.discard(number)
            del self.expired[number]
        for number, (rollout, oldest) in list(self.flying.items()):
            if oldest > step:  # steps were lost with their trainers: no weights are so new
                rollout.cancel()
                del self.flying[number]
                self.again.add(number)
        self._fill()

    @concurrent_endpoint
    async def state(self) -> RolloutState:
        begun, there = (*self.again, *self.flying), dict(self.there)
        following, expired = self.following, Counter(self.expired)
        # Afterwards, so it may have some that were begun; it knows their numbers.
        return RolloutState(following, begun, there, expired, await self.buffer.state())

    def _fill(self) -> None:
        oldest = max(0, self.step - self.plan.max_age)  # what is older the buffer has dropped
        for number in [number for number, each in self.there.items() if each < oldest]:
            del self.there[number]
            self.expired[number] += 1
            self.again.add(number)  # so no prompt is left out, and the first ones come first
        while len(self.there) + len(self.flying) < self.plan.groups * (self.plan.max_age + 1):
            if not self.again:
                self.again.add(self.following)
                self.following += 1
            self.again.remove(number := min(self.again))
            rollout = asyncio.create_task(self._roll_out(number, oldest))
            rollout.add_done_callback(self._ended)
            self.flying[number] = rollout, oldest
        self.groups.set(len(self.flying), {"where": "begun"})
        self.groups.set(len(self.there), {"where": "in the buffer"})

    def _ended(self, rollout: "asyncio.Task[None]") -> None:
        if not rollout.cancelled():
            self.failure = self.failure or rollout.exception()

    # region rollout
    async def _roll_out(self, number: int, oldest: int) -> None:
        asked = task(number, self.plan.seed, self.plan.malice)
        seeds = [hash((self.plan.seed, number, each)) % 2**31 for each in range(self.plan.answers)]
        answers = await self.writers.generate.call_one(asked.prompt, seeds, oldest)
        rewards = await self.judges.check.call_one(asked, [answer.text for answer in answers])
        group = Group(asked, answers, rewards)
        while number in self.flying:
            try:
                key = number, self.expired[number]
                await self.buffer.add(group, group.version, key=key)
            except SupervisionError:  # it is started again, empty, or has this group already
                await asyncio.sleep(0.1)
            else:
                if self.flying.pop(number, None) is not None:  # else it is used already
                    self.there[number] = group.version
        self.samples.add(len(answers), {"kind": asked.kind})
        self._fill()

    # endregion
