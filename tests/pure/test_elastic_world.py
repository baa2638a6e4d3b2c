"""`monarch.elastic`: the steps of a world, and where they end; which samples are whose."""

from __future__ import annotations

import importlib.util
import threading
from unittest.mock import Mock

import pytest

from monarch._core.plane import Promise
from monarch.actor import SupervisionError
from monarch.elastic import Batches, World
from monarch.elastic.world import WorldChanged, WorldPlace


def world(rank: int = 0, size: int = 1, step: int = 0) -> World:
    made = World(WorldPlace(1, rank, size, Mock(), True, step), Mock())
    made.restore()
    return made


def test_steps_begin_where_the_state_is_and_end_before_the_last() -> None:
    assert list(world(step=3).steps(6)) == [3, 4, 5]
    assert list(world(step=6).steps(6)) == []


def test_a_step_that_was_broken_off_is_not_done() -> None:
    it = world()
    for step in it.steps(5):
        if step == 2:
            break
    assert it.step == 2


def test_ranks_that_hold_at_different_steps_end_before_the_same_one() -> None:
    ahead, behind = world(step=4), world(step=4)
    steps_ahead, steps_behind = ahead.steps(10), behind.steps(10)
    assert [next(steps_ahead), next(steps_ahead), next(steps_behind)] == [4, 5, 4]
    end = max(ahead.hold(), behind.hold())
    assert (ahead.hold(), behind.hold(), end) == (6, 5, 6)
    for it in (ahead, behind):
        it.end_before(end)
    assert next(steps_behind) == 5
    for steps in (steps_ahead, steps_behind):
        with pytest.raises(WorldChanged):
            next(steps)
    assert ahead.step == behind.step == 6


@pytest.mark.parametrize("ending", ["end_before", "leave", "go on"])
def test_a_rank_that_holds_waits_until_it_is_told_how_it_goes_on(ending: str) -> None:
    it = world()
    assert it.hold() == 0
    done: list[int] = []
    ended: list[bool] = []

    def train() -> None:
        try:
            done.extend(it.steps(2))
        except WorldChanged:
            ended.append(True)

    thread = threading.Thread(target=train)
    thread.start()
    if ending == "leave":
        it.leave()
    else:
        it.end_before(0 if ending == "end_before" else None)
    thread.join(60)
    assert (done, ended) == (([0, 1], []) if ending == "go on" else ([], [True]))


@pytest.mark.parametrize("size", [1, 3, 4, 7])
def test_the_parts_of_all_ranks_are_the_whole_and_about_equal(size: int) -> None:
    parts = [world(rank, size).part(24) for rank in range(size)]
    assert [index for part in parts for index in range(24)[part]] == list(range(24))
    lengths = [part.stop - part.start for part in parts]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch, which is not installed"
)
def test_a_batch_is_the_same_however_many_share_it_and_whenever_it_is_asked_for() -> None:
    batches = Batches(length=50, size=8, seed=1)
    whole = [batches.indices(step, world()) for step in range(12)]
    for step in (11, 2, 7):
        assert [
            index for rank in range(3) for index in batches.indices(step, world(rank, 3))
        ] == whole[step]
    first, second = (
        [index for batch in epoch for index in batch] for epoch in (whole[:6], whole[6:])
    )
    assert len(set(first)) == len(first) == 48
    assert sorted(first) != first != second
    assert Batches(length=50, size=8, seed=2).indices(0, world()) != whole[0]
    with pytest.raises(ValueError, match="size=51: expected 1 to length=50"):
        Batches(50, 51)


def test_an_answer_of_an_actor_that_died_is_asked_for_again() -> None:
    first: Promise[int] = Promise("first")
    second: Promise[int] = Promise("second")
    first.reject(SupervisionError("the process has ended"))
    second.resolve(7)
    asked = iter([first.future, second.future])
    assert world().ask(lambda: next(asked)) == 7
    third: Promise[int] = Promise("third")
    third.reject(ValueError("too many"))
    with pytest.raises(ValueError, match="too many"):
        world().ask(lambda: third.future)


def test_the_wait_for_an_answer_ends_with_the_world() -> None:
    it = world()
    never: Promise[int] = Promise("never")
    threading.Timer(0.0, it.leave).start()
    with pytest.raises(WorldChanged):
        it.ask(lambda: never.future)
