"""`options(timeout=..., retries=...)`: who is asked again, how often, with what, and what the
caller hears in the end.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

import pytest

from helpers.attempts import let_expire, open_attempts, wait_for_attempt
from helpers.waiting import wait_until
from monarch.actor import (
    Accumulator,
    Actor,
    ActorError,
    DeadlockError,
    as_endpoint,
    context,
    endpoint,
)
from monarch.errors import CallTimeoutError

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spawn

pytestmark = pytest.mark.both

PATIENCE = 30.0


class Worker(Actor):
    def __init__(self) -> None:
        self.asked: list[int] = []

    @endpoint
    def work(self, number: int, door: str = "", stuck: int = -1) -> tuple[int, int]:
        """Rank `stuck` (-1: each) says that it has begun, and goes on when the door is open; its
        rank, and how often it was asked.
        """
        self.asked.append(number)
        rank = context().actor_instance.rank.rank
        if door and stuck in (-1, rank):
            with open(f"{door}.begun", "w"):
                pass
            while not os.path.exists(door):
                time.sleep(0.005)
        return rank, len(self.asked)

    @endpoint
    def fail(self) -> None:
        self.asked.append(-1)
        raise KeyError("as asked")

    @endpoint
    def time_out(self) -> None:
        self.asked.append(-1)
        raise TimeoutError("over there")

    @endpoint
    def asked_so_far(self) -> list[int]:
        return self.asked

    @endpoint
    def total(self, data: bytearray) -> int:
        return sum(data)


def wait_begun(door: Path) -> None:
    wait_until(lambda: os.path.exists(f"{door}.begun"), what="who waits for the door")


def asked(mesh: Worker) -> list[list[int]]:
    return mesh.asked_so_far.call().get(timeout=PATIENCE).values()


def test_a_call_whose_first_attempt_is_answered_is_as_any_other(spawn: Spawn) -> None:
    mesh = spawn(2).spawn("workers", Worker)
    work = mesh.work.options(timeout=PATIENCE, retries=3)
    assert work.call(1).get(timeout=PATIENCE).values() == [(0, 1), (1, 1)]
    assert mesh.slice(gpus=1).work.options(timeout=PATIENCE, retries=3).call_one(2).get(
        timeout=PATIENCE
    ) == (1, 2)
    assert work.choose(3).get(timeout=PATIENCE)[0] in (0, 1)

    async def main() -> None:
        assert (await work.call(4)).values()[0][0] == 0

    asyncio.run(main())
    assert [numbers.count(1) for numbers in asked(mesh)] == [1, 1]


def test_only_ranks_that_have_not_answered_are_asked_again(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    mesh = spawn(3).spawn("workers", Worker)
    call = mesh.work.options(timeout=PATIENCE, retries=3).call(1, str(door), stuck=1)
    wait_begun(door)
    let_expire(1, {1})
    let_expire(2, {1})
    wait_for_attempt(3, {1})
    wait_until(
        lambda: [attempt.number for attempt in open_attempts()] == [1, 3],
        what="the second to be dropped",
    )
    assert not call.done()
    door.touch()
    # the answer of rank 1 is that of the first attempt, which came late
    assert call.get(timeout=PATIENCE).values() == [(0, 1), (1, 1), (2, 1)]
    wait_until(lambda: not open_attempts(), what="the end of the last attempt")
    numbers = asked(mesh)
    assert numbers[0] == numbers[2] == [1]
    assert numbers[1] in ([1], [1, 1])  # the third may have begun before the word to drop it came


def test_a_call_that_runs_out_of_attempts_says_so_and_has_the_answers_so_far(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    mesh = spawn(3).spawn("workers", Worker)
    call = mesh.work.options(timeout=PATIENCE, retries=2).call(1, str(door), stuck=1)
    wait_begun(door)  # what has begun is not dropped, and holds up the rank
    for number in (1, 2, 3):
        let_expire(number, {1})
    with pytest.raises(CallTimeoutError, match=r"1/3.*within 30s; 3 attempts were made") as caught:
        call.get(timeout=PATIENCE)
    assert {point.rank: value for point, value in caught.value.values.items()} == {
        0: (0, 1),
        2: (2, 1),
    }

    one = mesh.slice(gpus=1).work
    with pytest.raises(
        TimeoutError, match=r"workers.work\(\): no answer within 0.2s; 2 attempts were made"
    ):
        one.options(timeout=0.2, retries=1).call_one(2).get(timeout=PATIENCE)

    async def main() -> None:
        with pytest.raises(TimeoutError, match="1 attempt was made"):
            await one.options(timeout=0.2).call_one(3)

    asyncio.run(main())
    wait_until(
        lambda: [attempt.number for attempt in open_attempts()] == [1],
        what="what has not begun to be dropped",
    )
    door.touch()
    wait_until(lambda: not open_attempts(), what="the end of the first attempt")
    assert asked(mesh) == [[1], [1], [1]]


def test_a_call_that_waits_for_all_tells_of_errors_rather_than_of_late_ranks(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"

    class Uneven(Worker):
        @endpoint
        def some(self, door: str) -> int:
            rank = context().actor_instance.rank.rank
            if rank == 2:
                raise KeyError("as asked")
            while rank == 1 and not os.path.exists(door):
                time.sleep(0.005)
            return rank

    mesh = spawn(3).spawn("uneven", Uneven)
    call = mesh.some.options(timeout=PATIENCE, retries=1, wait_for_all=True).call(str(door))
    let_expire(1, {1})
    let_expire(2, {1})
    error: Any = call.exception(timeout=PATIENCE)
    door.touch()
    by_rank = error.by_rank
    assert isinstance(error, KeyError)
    assert {point.rank: isinstance(reason, TimeoutError) for point, reason in by_rank.items()} == {
        1: True,
        2: False,
    }


def test_what_an_endpoint_raises_is_raised_at_once_and_never_asked_again(spawn: Spawn) -> None:
    mesh = spawn(2).spawn("workers", Worker)
    with pytest.raises(KeyError, match="as asked"):
        mesh.fail.options(timeout=PATIENCE, retries=3).call().get(timeout=PATIENCE)
    with pytest.raises(ActorError, match="over there"):
        mesh.time_out.options(timeout=PATIENCE, retries=3).call().get(timeout=PATIENCE)
    with pytest.raises(KeyError):
        mesh.slice(gpus=0).fail.options(retries=3).call_one().get(timeout=PATIENCE)
    assert asked(mesh) == [[-1] * 3, [-1] * 2]


def test_choose_asks_another_rank_when_one_takes_too_long(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    mesh = spawn(2).spawn("workers", Worker)
    held = mesh.slice(gpus=0).work.call_one(0, str(door))
    answers = []
    for number in range(6):
        call = mesh.work.options(timeout=PATIENCE, retries=1).choose(number)
        if any(0 in attempt.silent for attempt in open_attempts()):  # it was chosen, and is held up
            let_expire(1, {0})
        answers.append(call.get(timeout=PATIENCE)[0])
        wait_until(lambda: not open_attempts(), what="the end of what was dropped")
    door.touch()
    held.get(timeout=PATIENCE)
    assert answers == [1] * 6
    assert asked(mesh) == [[0], list(range(6))]


def test_each_attempt_has_the_arguments_of_the_call(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    mesh = spawn(1).spawn("workers", Worker)
    size = 3 << 20  # large enough to stay out of the pickle
    data = bytearray(b"\1" * size)
    held = mesh.work.call_one(0, str(door))
    call = mesh.total.options(timeout=PATIENCE, retries=1).call_one(data)
    data[:] = bytes(size)
    let_expire(1, {0})
    wait_for_attempt(2, {0})
    wait_until(lambda: len(open_attempts()) == 1, what="the first to be dropped")
    door.touch()
    held.get(timeout=PATIENCE)
    assert call.get(timeout=PATIENCE) == size


def test_a_call_that_is_cancelled_is_not_repeated(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    mesh = spawn(1).spawn("workers", Worker)
    held = mesh.work.call_one(0, str(door))
    call = mesh.work.options(timeout=PATIENCE, retries=3).call_one(1)
    assert call.cancel()
    door.touch()
    with pytest.raises(CancelledError):
        call.get(timeout=PATIENCE)
    held.get(timeout=PATIENCE)
    assert asked(mesh) == [[0]]


def test_options_that_make_no_sense_are_refused_where_they_are_given(spawn: Spawn) -> None:
    mesh = spawn(1).spawn("workers", Worker)
    wrong: Any
    for wrong in (True, "5", [1]):
        with pytest.raises(
            TypeError, match=r"timeout of workers.work\(\) is a number of seconds or None, got "
        ):
            mesh.work.options(timeout=wrong)
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=r"timeout of .* is > 0 and finite, got "):
            mesh.work.options(timeout=wrong)
    for wrong in (True, False, "3", 1.0, None):
        with pytest.raises(TypeError, match=r"retries of workers.work\(\) must be an int, got "):
            mesh.work.options(retries=wrong)
    with pytest.raises(ValueError, match="retries of .* must be at least 0, got -1"):
        mesh.work.options(retries=-1)
    with pytest.raises(
        TypeError, match="no option 'retry'; there are: wait_for_all, timeout, retries"
    ):
        mesh.work.options(retry=1)


def test_adverbs_that_cannot_be_repeated_say_so(spawn: Spawn) -> None:
    mesh = spawn(1).spawn("workers", Worker)
    work = mesh.work.options(retries=1)
    for adverb in (work.broadcast, work.stream, work.rref):
        with pytest.raises(TypeError, match=r"of workers.work\(\) takes no timeout and no retries"):
            adverb(1)
    with pytest.raises(TypeError, match="takes no timeout"):
        Accumulator(work, (0, 0), max).accumulate(1)
    mesh.work.options(retries=1).options(retries=0).broadcast(7)  # as any other again
    untyped: Any = work
    with pytest.raises(TypeError, match="missing a required argument"):
        untyped.call_one()
    with pytest.raises(ValueError, match="exactly 1 actor"):
        spawn(2).spawn("two", Worker).work.options(retries=1).call_one(1)
    assert asked(mesh) == [[7]]


class Asker(Actor):
    @endpoint
    def ask(self, work: Any, door: str) -> tuple[list[Any], str]:
        answers = work.call(1).get(timeout=PATIENCE).values()
        try:
            work.options(timeout=0.2).call(2, door, stuck=0).get(timeout=PATIENCE)
        except TimeoutError as error:
            return answers, str(error)
        return answers, "no error"

    @endpoint
    def ask_itself(self, me: Any) -> str:
        try:
            as_endpoint(me.ask_itself).options(retries=2).call_one(me).get()
        except DeadlockError as error:
            return str(error)
        return "no error"


@pytest.mark.processes("threads that wait outside of the engine")
def test_an_actor_may_repeat_calls_with_an_endpoint_that_it_was_sent(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    mesh = spawn(2).spawn("workers", Worker)
    asker = spawn(1).spawn("asker", Asker)
    work = mesh.work.options(timeout=PATIENCE, retries=1)
    answers, text = asker.ask.call_one(work, str(door)).get(timeout=PATIENCE)
    door.touch()
    assert answers == [(0, 1), (1, 1)]
    assert "2 attempts were made" in text
    assert "would wait for the very actor" in asker.ask_itself.call_one(asker).get(timeout=PATIENCE)


class Player(Actor):
    @endpoint
    def meet(self, other: Any) -> None:
        self.other = other

    @endpoint
    def ping(self) -> Any:
        return self.other.pong.options(retries=3).call().get()

    @endpoint
    def pong(self) -> Any:
        return self.other.ping.options(retries=3).call_one().get()


def test_a_circle_of_repeated_calls_without_a_time_limit_is_a_deadlock(spawn: Spawn) -> None:
    procs = spawn(1)
    left, right = procs.spawn("left", Player), procs.spawn("right", Player)
    left.meet.call_one(right).get(timeout=PATIENCE)
    right.meet.call_one(left).get(timeout=PATIENCE)
    with pytest.raises(DeadlockError):
        left.ping.call_one().get(timeout=PATIENCE)


@pytest.mark.processes("threads that wait outside of the engine")
def test_nothing_is_kept_of_a_call_that_is_over(spawn: Spawn) -> None:
    mesh = spawn(2).spawn("workers", Worker)
    requests: Any = context()._cell.hub.requests
    before = len(requests)
    work = mesh.work.options(timeout=PATIENCE, retries=3)
    gc.collect()
    gc.disable()  # what is freed is freed without a search for circles
    try:
        tracked = len([o for o in gc.get_objects() if str(type(o).__module__).endswith("retrying")])
        for _ in range(10):
            work.call(1).get(timeout=PATIENCE)
        wait_until(lambda: len(requests) <= before, what="the end of all requests")
        wait_until(
            lambda: (
                len([o for o in gc.get_objects() if str(type(o).__module__).endswith("retrying")])
                <= tracked
            ),
            what="the end of what they need",
        )
    finally:
        gc.enable()
