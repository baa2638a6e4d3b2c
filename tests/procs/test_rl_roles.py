"""Roles of the example of reinforcement learning, when others die or go back: none waits for ever."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from helpers.waiting import wait_until
from monarch.actor import Actor, concurrent_endpoint, endpoint, this_proc
from monarch.supervision import OneForOne

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from examples.rl import verifier as verifiers  # noqa: E402
from examples.rl.generator import Answer  # noqa: E402
from examples.rl.plan import Plan  # noqa: E402
from examples.rl.rollouts import Buffer, Rollouts, RolloutState  # noqa: E402
from examples.rl.tasks import Task, task  # noqa: E402

if TYPE_CHECKING:
    from conftest import Spawn

PLAN = Plan(groups=4, answers=2, max_age=0)


class Writer(Actor):
    """Stands for generators: answers once there are weights that are new enough."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.changed = asyncio.Condition()

    @concurrent_endpoint
    async def generate(self, prompt: bytes, seeds: list[int], least: int) -> list[Answer]:
        async with self.changed:
            await self.changed.wait_for(lambda: self.version >= least)
        return [Answer(b"1\n", [0.0, 0.0], [self.version] * 2) for _ in seeds]

    @concurrent_endpoint
    async def follow(self, version: int) -> None:
        async with self.changed:
            self.version = version
            self.changed.notify_all()


class Judge(Actor):
    @endpoint
    def check(self, asked: Task, answers: list[bytes]) -> list[float]:
        return [1.0] * len(answers)


def test_what_a_buffer_has_lost_is_made_again_though_no_more_may_be_begun(spawn: Spawn) -> None:
    store = spawn(1, restart=OneForOne())
    buffer = Buffer(store, 12, consume=True, max_age=0)
    others = spawn(1)
    writer: Any = others.spawn("writer", Writer, 0)
    judge: Any = others.spawn("judge", Judge)
    rollouts = this_proc().spawn("rollouts", Rollouts, PLAN, RolloutState(), writer, judge, buffer)
    rollouts.mind.broadcast()
    rollouts.progress.call_one(0, []).get()
    wait_until(lambda: buffer.statistics().get().items == PLAN.groups, what="all groups")
    store.kill().get()
    drawn = buffer.sample(PLAN.groups, 0, order="oldest", batch=0).get()
    assert [group.task.number for group in drawn] == [4, 5, 6, 7]
    assert buffer.statistics().get().restarts == 1


def test_groups_for_weights_that_were_lost_are_begun_again_with_older_ones(spawn: Spawn) -> None:
    others = spawn(1)
    writer: Any = others.spawn("writer", Writer, 1)
    judge: Any = others.spawn("judge", Judge)
    buffer = Buffer(others, 12, consume=True, max_age=0)
    rollouts = this_proc().spawn("rollouts", Rollouts, PLAN, RolloutState(), writer, judge, buffer)
    rollouts.progress.call_one(5, []).get()
    assert len(rollouts.state.call_one().get().begun) == PLAN.groups
    rollouts.progress.call_one(2, []).get()  # all trainers were lost, and a checkpoint was read
    writer.follow.call_one(2).get()
    assert len(buffer.sample(PLAN.groups, 2, order="oldest", batch=2).get()) == PLAN.groups


def test_groups_that_grew_too_old_are_begun_again_before_new_ones(spawn: Spawn) -> None:
    others = spawn(1)
    writer: Any = others.spawn("writer", Writer, 0)
    judge: Any = others.spawn("judge", Judge)
    buffer = Buffer(others, 12, consume=True, max_age=0)
    state = RolloutState()
    for step in (0, 1, 2):  # of which the first two are lost with their trainers, and a checkpoint
        writer.follow.call_one(step).get()
        rollouts: Any = this_proc().spawn("rollouts", Rollouts, PLAN, state, writer, judge, buffer)
        rollouts.progress.call_one(step, []).get()
        wait_until(lambda: buffer.statistics().get().added == 4 * step + 4, what="all groups")  # noqa: B023
        wait_until(lambda: not rollouts.state.call_one().get().begun, what="none is on its way")  # noqa: B023
        state = rollouts.state.call_one().get()
        rollouts.stop().get()
    drawn = buffer.sample(PLAN.groups, 2, order="oldest", batch=2).get()
    assert {group.task.number: group.version for group in drawn} == dict.fromkeys(range(4), 2)


class Late(Actor):
    """Stands for a buffer: it has what it gets at once, and says so later."""

    def __init__(self) -> None:
        self.keys: list[object] = []
        self.says_so = asyncio.Event()

    @concurrent_endpoint
    async def take(self, key: object) -> None:
        self.keys.append(key)
        await self.says_so.wait()

    @concurrent_endpoint
    async def has(self) -> list[object]:
        return self.keys

    @concurrent_endpoint
    async def say_so(self) -> None:
        self.says_so.set()


class LateBuffer:
    def __init__(self, actor: Any) -> None:
        self.actor = actor

    def add(self, group: object, version: int, *, key: object) -> Any:
        return self.actor.take.call_one(key)

    async def state(self) -> None:
        return None


def test_a_group_that_is_used_before_its_buffer_has_answered_is_not_begun_again(
    spawn: Spawn,
) -> None:
    others = spawn(1)
    writer: Any = others.spawn("writer", Writer, 3)
    judge: Any = others.spawn("judge", Judge)
    late: Any = others.spawn("late", Late)
    buffer: Any = LateBuffer(late)
    rollouts: Any = this_proc().spawn(
        "rollouts", Rollouts, PLAN, RolloutState(), writer, judge, buffer
    )
    rollouts.progress.call_one(0, []).get()
    wait_until(lambda: len(late.has.call_one().get()) == 4, what="all groups")
    rollouts.progress.call_one(1, [0, 1, 2, 3]).get()
    late.say_so.call_one().get()
    wait_until(lambda: set(rollouts.state.call_one().get().there) == {4, 5, 6, 7}, what="others")
    rollouts.progress.call_one(5, [4, 5, 6, 7]).get()
    writer.follow.call_one(5).get()
    wait_until(lambda: len(rollouts.state.call_one().get().there) == 4, what="the next ones")
    assert sorted(late.has.call_one().get()) == [(number, 0) for number in range(12)]


HALF_A_LINE = """
def check(prompt, answer):
    import os, signal, time
    signal.setitimer(signal.ITIMER_REAL, 0)
    if os.fork():
        os.write(0, b"1")
    time.sleep(1000)
"""


@pytest.mark.processes("a process for checks, with one of its own")
def test_a_checker_that_says_half_of_its_answer_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(verifiers, "TIME_LIMIT", 0.2)
    sandbox = verifiers.Sandbox()
    asked = task(0)
    bad = Task(0, asked.kind, asked.prompt, asked.answer, HALF_A_LINE)
    assert sandbox.check(bad, ["1", "2"]) is None
    monkeypatch.setattr(verifiers, "TIME_LIMIT", 60.0)
    right = asked.answer.decode().rstrip("\n")
    assert sandbox.check(asked, [right, "?"]) == [1.0, 0.0]
    sandbox.end()
