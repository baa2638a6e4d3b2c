"""Batches of a `ReplayBuffer` that have a number: the same for each process that asks, until they
are forgotten; and its content, for a checkpoint.
"""

from __future__ import annotations

import os
import pickle
import signal
from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import Actor, SupervisionError, endpoint
from monarch.queues import Empty, Full, ReplayBuffer

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults


class Trainer(Actor):
    @endpoint
    def draw(self, buffer: ReplayBuffer[int], step: int) -> list[int]:
        return buffer.sample(2, order="oldest", batch=step).get()

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def draw_and_hang(self, buffer: ReplayBuffer[int], step: int, then: ReplayBuffer[int]) -> None:
        drawn = buffer.sample(2, order="oldest", batch=step).get()
        then.add(drawn[0]).get()
        then.sample(2).get()  # which never has two


def _filled(procs: Any, count: int, **options: Any) -> ReplayBuffer[int]:
    buffer: ReplayBuffer[int] = ReplayBuffer(procs, 10, **options)
    for number in range(count):
        buffer.add(number, version=number).get()
    return buffer


@pytest.mark.parametrize("consume", [True, False])
def test_a_batch_with_a_number_is_the_same_for_who_asks_again(spawn: Spawn, consume: bool) -> None:
    buffer = _filled(spawn(1), 6, consume=consume)
    first = buffer.sample(2, batch=0).get()
    assert buffer.sample(2, batch=0).get() == first
    trainers = spawn(2).spawn("trainers", Trainer)
    assert set(map(tuple, trainers.draw.call(buffer, 0).get().values())) == {tuple(first)}
    if consume:  # others have others
        rest = buffer.sample(2, batch=1).get() + buffer.sample(2, batch=2).get()
        assert sorted(first + rest) == [0, 1, 2, 3, 4, 5]


def test_a_batch_with_a_number_outlives_the_trainer_that_drew_it(
    spawn: Spawn, faults: Faults
) -> None:
    store, procs = spawn(1), spawn(2)
    buffer, began = _filled(store, 4, consume=True), _filled(store, 0, consume=True)
    trainers = procs.spawn("trainers", Trainer)
    first, second = trainers.slice(gpus=0), trainers.slice(gpus=1)
    pid = first.pid.call_one().get()
    hangs = first.draw_and_hang.call_one(buffer, 7, began)
    assert began.sample(1).get() == [0]
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SupervisionError):
        hangs.get()
    assert second.draw.call_one(buffer, 7).get() == [0, 1]
    assert second.draw.call_one(buffer, 8).get() == [2, 3]


def test_two_who_wait_for_one_number_share_a_batch(spawn: Spawn) -> None:
    buffer = _filled(spawn(1), 0, consume=True)
    both = [buffer.sample(2, batch=0) for _ in range(2)]
    for number in range(2):
        buffer.add(number).get()
    assert [sorted(each.get()) for each in both] == [[0, 1], [0, 1]]


def test_a_batch_that_is_forgotten_is_drawn_anew(spawn: Spawn) -> None:
    buffer = _filled(spawn(1), 6, consume=True)
    for step in range(2):
        buffer.sample(2, order="oldest", batch=step).get()
    buffer.forget(1).get()
    assert buffer.sample(2, order="oldest", batch=1).get() == [2, 3]
    assert buffer.sample(2, order="oldest", batch=0).get() == [4, 5]
    with pytest.raises(ValueError, match="batch must be at least 0"):
        buffer.sample(1, batch=-1)


def test_the_state_of_a_buffer_is_that_of_another_one_with_its_batches(spawn: Spawn) -> None:
    procs = spawn(1)
    buffer = _filled(procs, 6, consume=True, max_age=4)
    assert buffer.sample(2, order="oldest", batch=3).get() == [1, 2]  # 0 is too old
    state = pickle.loads(pickle.dumps(buffer.state().get()))
    other = _filled(procs, 3, consume=True, max_age=4)
    other.sample(3, batch=4).get()
    other.load(state).get()
    assert other.sample(2, batch=3).get() == [1, 2]
    assert other.sample(3, order="oldest").get() == [3, 4, 5]
    found = other.statistics().get()
    assert (found.items, found.version, found.restarts) == (0, 5, 0)
    with pytest.raises(Empty):
        buffer.sample(4, timeout=0).get()  # what was saved is where it was
    assert sorted(buffer.sample(3).get()) == [3, 4, 5]


def test_an_item_with_a_key_that_is_known_is_not_there_twice(spawn: Spawn) -> None:
    buffer: ReplayBuffer[str] = ReplayBuffer(spawn(1), 2, consume=True)
    buffer.add("one", key=1).get()
    assert buffer.sample(1).get() == ["one"]
    buffer.add("one again", key=1).get()
    assert buffer.statistics().get().items == 0
    buffer.add("none").get()
    buffer.add("nor this").get()
    with pytest.raises(Full):  # so it is not known: it may be added once there is room
        buffer.add("two", key=2, timeout=0).get()
    buffer.clear().get()
    buffer.add("two", key=2).get()
    assert buffer.sample(1).get() == ["two"]
    for key in range(3, 7):
        buffer.add("another", key=key).get()
        buffer.clear().get()
    buffer.add("one", key=1).get()  # forgotten: twice as many have come since
    assert buffer.sample(1).get() == ["one"]
    with pytest.raises(TypeError, match="unhashable"):
        buffer.add("three", key=[3])  # type: ignore[arg-type]


def test_a_trainer_that_goes_back_is_given_items_of_that_time(spawn: Spawn) -> None:
    buffer = _filled(spawn(1), 0, consume=True, max_age=0)
    with pytest.raises(Empty):
        buffer.sample(1, version=5, timeout=0).get()
    buffer.add(7, version=7).get()  # a producer ahead of it makes no others too old
    buffer.add(5, version=5).get()
    assert buffer.sample(1, version=5, order="newest").get() == [5]
    buffer.add(4, version=4).get()
    assert buffer.statistics().get().expired == 1
    with pytest.raises(Empty):  # all ranks were lost, and a checkpoint was read
        buffer.sample(2, version=3, timeout=0).get()
    buffer.add(3, version=3).get()
    assert buffer.sample(2, version=3, order="oldest").get() == [7, 3]


def test_a_state_knows_the_keys_of_items_that_were_drawn(spawn: Spawn) -> None:
    procs = spawn(1)
    buffer, other = (_filled(procs, 0, consume=True) for _ in range(2))
    buffer.add(1, key="one").get()
    assert buffer.sample(1).get() == [1]
    other.load(buffer.state().get()).get()
    other.add(1, key="one").get()
    assert other.statistics().get().items == 0
