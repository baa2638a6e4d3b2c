"""Ranks that are fed by loaders in actors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest

from monarch.actor import Actor, SupervisionError, current_rank, endpoint, this_host
from monarch.data import Batches, DataFeed, LoaderInfo
from monarch.supervision import OneForOne

if TYPE_CHECKING:
    from conftest import Spawn

LENGTH = 6  # items of each loader


def numbers(loader: LoaderInfo) -> Iterator[tuple[int, int]]:
    """The numbers of the batches, and the process that made them."""
    for item in range(LENGTH):
        yield item * loader.count + loader.index, os.getpid()


def broken(loader: LoaderInfo) -> Iterator[int]:
    yield 0
    raise ZeroDivisionError("sample 17 is empty")


def large(loader: LoaderInfo) -> Iterator[dict[str, bytearray]]:
    for item in range(3):
        yield {"tokens": bytearray([item]) * (1 << 20)}


def reused(loader: LoaderInfo) -> Iterator[bytearray]:
    """Makes all items in the same memory."""
    memory = bytearray(1 << 20)
    for item in range(LENGTH):
        memory[:] = bytes([item]) * len(memory)
        yield memory


class Counting:
    """Says how many items were made, in a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, loader: LoaderInfo) -> Iterator[int]:
        for item in range(1000):
            with open(self.path, "a") as file:
                file.write("x")
            yield item


class Rank(Actor):
    def __init__(self, feed: DataFeed[tuple[int, int]], world_size: int) -> None:
        self.batches = feed.iterate(rank=current_rank().rank, world_size=world_size)

    @endpoint
    def take(self, count: int) -> list[int]:
        return [number for number, _ in islice(self.batches, count)]

    @endpoint
    def state(self) -> dict[str, int]:
        return self.batches.state_dict()


def taken(batches: Batches[tuple[int, int]], count: int = 1000) -> list[int]:
    return [number for number, _ in islice(batches, count)]


def test_each_rank_gets_its_batches_in_order_to_the_end(spawn: Spawn) -> None:
    feed = DataFeed(spawn(2), numbers)
    ranks = spawn(2).spawn("ranks", Rank, feed, 2)
    assert list(ranks.take.call(2).get().values()) == [[0, 2], [1, 3]]
    assert list(ranks.state.call().get().values()) == [{"position": 4}] * 2
    assert list(ranks.take.call(1000).get().values()) == [[4, 6, 8, 10], [5, 7, 9, 11]]
    assert list(ranks.take.call(1000).get().values()) == [[], []]


def test_another_number_of_ranks_goes_on_at_a_saved_position(spawn: Spawn) -> None:
    feed = DataFeed(spawn(2), numbers)
    first = feed.iterate(rank=0, world_size=1)
    assert taken(first, 4) == [0, 1, 2, 3]
    saved = first.state_dict()
    halves = [
        feed.iterate(rank=rank, world_size=2, position=saved["position"]) for rank in range(2)
    ]
    assert [taken(half) for half in halves] == [[4, 6, 8, 10], [5, 7, 9, 11]]
    first.load_state_dict({"position": 2})
    assert taken(first) == list(range(2, 12))


def test_a_new_feed_goes_on_where_an_old_one_was(spawn: Spawn) -> None:
    position = 0
    seen: list[int] = []
    for _ in range(3):
        batches = DataFeed(spawn(1), numbers).iterate(rank=0, world_size=1, position=position)
        seen += taken(batches, 2)
        position = batches.position
    assert seen == list(range(LENGTH))


@pytest.mark.usefixtures("_process_test")
def test_a_loader_that_dies_is_started_again_and_no_batch_is_lost_or_twice() -> None:
    procs = this_host().spawn_procs({"gpus": 2}, restart=OneForOne(max_restarts=3, within=600))
    try:
        batches = DataFeed(procs, numbers, prefetch=3).iterate(rank=0, world_size=1)
        seen, makers = [], set()
        for number, maker in batches:
            seen.append(number)
            makers.add(maker)
            if number in (3, 6):
                os.kill(maker, signal.SIGKILL)
        assert seen == list(range(2 * LENGTH))
        assert len(makers) >= 3
    finally:
        procs.stop().get()


def test_the_end_of_a_loader_that_is_not_started_again_is_told(spawn: Spawn, faults: Any) -> None:
    batches = DataFeed(spawn(1), numbers, prefetch=1).iterate(rank=0, world_size=1)
    _, maker = next(batches)
    os.kill(maker, signal.SIGKILL)
    with pytest.raises(SupervisionError):
        taken(batches)
    faults.wait_for(1)


def test_an_error_of_the_data_set_is_raised_with_its_traceback_each_time(spawn: Spawn) -> None:
    batches = DataFeed(spawn(1), broken).iterate(rank=0, world_size=1)
    assert next(batches) == 0
    for _ in range(2):
        with pytest.raises(Exception, match=r"sample 17 is empty") as caught:
            next(batches)
        assert "in broken" in str(caught.value)
    assert batches.position == 1


def test_large_batches_arrive_as_they_were(spawn: Spawn) -> None:
    batches = DataFeed(spawn(1), large).iterate(rank=0, world_size=1)
    assert [(len(batch["tokens"]), batch["tokens"][-1]) for batch in batches] == [
        (1 << 20, item) for item in range(3)
    ]


def test_no_more_is_made_than_is_asked_for(spawn: Spawn, tmp_path: Any) -> None:
    made = tmp_path / "made"
    batches = DataFeed(spawn(1), Counting(str(made)), prefetch=2).iterate(rank=0, world_size=1)
    assert [next(batches), next(batches)] == [0, 1]
    assert 2 <= len(made.read_text()) <= 4
    assert batches.position == 2


def test_an_item_that_is_asked_for_again_is_not_made_again(spawn: Spawn, tmp_path: Any) -> None:
    made = tmp_path / "made"
    loader = DataFeed(spawn(1), Counting(str(made)))._loaders
    for item in (3, 3, 2, 3, 4, 4):  # as after an answer that came too late, and after a restart
        assert loader.take.call_one(item).get() == item
    assert len(made.read_text()) == 5


def test_items_made_in_the_same_memory_are_told_apart(spawn: Spawn) -> None:
    loader = DataFeed(spawn(1), reused)._loaders
    for item in (3, 2, 1, 4, 5):
        assert set(loader.take.call_one(item).get()) == {item}


def test_arguments_that_do_not_fit_are_refused(spawn: Spawn) -> None:
    procs = spawn(2)
    with pytest.raises(TypeError, match="mesh of processes"):
        DataFeed(None, numbers)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="function of a LoaderInfo"):
        DataFeed(procs, [1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="prefetch"):
        DataFeed(procs, numbers, prefetch=0)
    feed = DataFeed(procs, numbers)
    with pytest.raises(ValueError, match="multiple of 3"):
        feed.iterate(rank=0, world_size=3)
    with pytest.raises(ValueError, match="position"):
        feed.iterate(rank=0, world_size=2, position=1)
    with pytest.raises(ValueError, match="timeout"):
        feed.iterate(rank=0, world_size=2, timeout=0)


def test_a_feed_that_is_stopped_ends_waits(spawn: Spawn) -> None:
    feed = DataFeed(spawn(1), numbers)
    batches = feed.iterate(rank=0, world_size=1)
    next(batches)
    feed.stop()
    with pytest.raises(SupervisionError):
        taken(batches)
