"""`Future.cancel`: what has not begun is dropped, what has begun goes on, and the future tells
which.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from concurrent.futures import CancelledError
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import open_channel
from helpers.unread import unread_errors
from helpers.waiting import wait_until
from monarch.actor import Actor, concurrent_endpoint, endpoint, returns_future

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spawn

PATIENCE = 20.0


class Worker(Actor):
    """Does one thing after the other, each once its door is open."""

    def __init__(self) -> None:
        self.begun: list[int] = []

    @endpoint
    def work(self, number: int, door: str = "") -> int:
        self.begun.append(number)
        while door and not os.path.exists(door):
            time.sleep(0.005)
        return number

    @endpoint
    def begun_so_far(self) -> list[int]:
        return self.begun


class AsyncWorker(Actor):
    def __init__(self) -> None:
        self.begun: list[int] = []

    async def _do(self, number: int, door: str) -> int:
        self.begun.append(number)
        while door and not os.path.exists(door):
            await asyncio.sleep(0.005)
        return number

    @endpoint
    async def work(self, number: int, door: str = "") -> int:
        return await self._do(number, door)

    @endpoint(concurrency=1)
    async def bounded(self, number: int, door: str = "") -> int:
        return await self._do(number, door)

    @concurrent_endpoint
    async def begun_so_far(self) -> list[int]:
        return self.begun


@pytest.mark.parametrize(
    ("kind", "name"), [(Worker, "work"), (AsyncWorker, "work"), (AsyncWorker, "bounded")]
)
def test_calls_that_wait_for_their_turn_are_dropped_and_the_others_are_not(
    spawn: Spawn, tmp_path: Path, kind: Any, name: str
) -> None:
    door = tmp_path / "door"
    actor = spawn(1).spawn("worker", kind)
    work = getattr(actor, name)
    assert work.call_one(-1).get(timeout=PATIENCE) == -1
    calls = [work.call_one(number, str(door)) for number in range(6)]
    assert [calls[number].cancel() for number in (2, 3, 5)] == [True] * 3
    for number in (2, 3, 5):
        with pytest.raises(
            CancelledError, match=f"worker.{name}.. was cancelled before it had begun"
        ):
            calls[number].get(timeout=PATIENCE)  # at once: the door is shut
        assert calls[number].cancelled()
        assert not calls[number].cancel()
    door.touch()
    assert [calls[number].get(timeout=PATIENCE) for number in (0, 1, 4)] == [0, 1, 4]
    assert actor.begun_so_far.call_one().get(timeout=PATIENCE) == [-1, 0, 1, 4]


def test_a_call_that_has_begun_goes_on_and_its_future_has_its_result(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    actor = spawn(1).spawn("worker", AsyncWorker)
    call = actor.bounded.call_one(0, str(door))
    wait_until(
        lambda: actor.begun_so_far.call_one().get(timeout=PATIENCE) == [0], what="the call to begin"
    )
    assert call.cancel()  # it is asked for, and comes too late
    door.touch()
    assert call.get(timeout=PATIENCE) == 0
    assert not call.cancelled()
    assert not call.cancel()


@pytest.mark.parametrize("wait_for_all", [False, True])
def test_a_call_to_many_is_dropped_by_those_that_have_not_begun(
    spawn: Spawn, tmp_path: Path, wait_for_all: bool
) -> None:
    door = tmp_path / "door"
    actors = spawn(2).spawn("worker", Worker)
    first, second = actors.slice(gpus=0), actors.slice(gpus=1)
    actors.work.call(-1).get(timeout=PATIENCE)
    held = first.work.call_one(0, str(door))
    call = actors.work.options(wait_for_all=wait_for_all).call(1)
    second.work.call_one(2).get(timeout=PATIENCE)  # it is done with 1 as well
    assert call.cancel()
    with pytest.raises(CancelledError):
        call.get(timeout=PATIENCE)
    door.touch()
    assert held.get(timeout=PATIENCE) == 0
    assert first.begun_so_far.call_one().get(timeout=PATIENCE) == [-1, 0]
    assert second.begun_so_far.call_one().get(timeout=PATIENCE) == [-1, 1, 2]


def test_a_stream_is_one_call_and_its_futures_are_cancelled_together(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    actors = spawn(2).spawn("worker", Worker)
    actors.work.call(-1).get(timeout=PATIENCE)
    held = actors.work.call(0, str(door))
    futures = list(actors.work.stream(1))
    assert futures[1].cancel()
    for future in futures:
        with pytest.raises(CancelledError):
            future.get(timeout=PATIENCE)
    door.touch()
    held.get(timeout=PATIENCE)
    assert actors.begun_so_far.call().get(timeout=PATIENCE).values() == [[-1, 0]] * 2


def test_a_cancelled_call_is_awaited_waited_for_and_dropped_without_a_warning(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    actor = spawn(1).spawn("worker", Worker)
    actor.work.call_one(-1).get(timeout=PATIENCE)
    held = actor.work.call_one(0, str(door))
    calls = [actor.work.call_one(number) for number in range(1, 4)]
    with unread_errors() as unread:
        for call in calls:
            call.cancel()
        # typed for futures of its own
        done: Any = wait_for(calls, PATIENCE)  # type: ignore[arg-type]
        assert not done.not_done

        async def main() -> None:
            with pytest.raises(CancelledError):
                await calls[0]

        asyncio.run(main())
        del call, done
        calls.clear()
        gc.collect()
        door.touch()
        held.get(timeout=PATIENCE)
    assert unread.texts == []


def test_a_call_to_an_actor_that_is_still_being_made_is_dropped(
    spawn: Spawn, tmp_path: Path
) -> None:
    class Slow(Actor):
        def __init__(self, door: str) -> None:
            while not os.path.exists(door):
                time.sleep(0.005)
            self.seen: list[int] = []

        @endpoint
        def see(self, number: int) -> list[int]:
            self.seen.append(number)
            return self.seen

    door = tmp_path / "door"
    slow = spawn(1).spawn("slow", Slow, str(door))
    first, second = slow.see.call_one(1), slow.see.call_one(2)
    assert first.cancel()
    with pytest.raises(CancelledError):
        first.get(timeout=PATIENCE)
    door.touch()
    assert second.get(timeout=PATIENCE) == [2]


def test_what_is_no_call_is_cancelled_if_it_has_not_begun() -> None:
    runs = []

    @returns_future
    async def body() -> None:
        runs.append(1)

    future = body()
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.get()
    assert not runs
    begun = body()
    begun.get()
    assert not begun.cancel()

    port, receiver = open_channel()
    first, second = receiver.recv(), receiver.recv()
    assert first.cancel()
    port.send("a value")
    assert second.get(timeout=PATIENCE) == "a value"  # the place of the first went to the second
    with pytest.raises(CancelledError):
        first.get()


def test_a_spawn_cannot_be_cancelled(spawn: Spawn) -> None:
    stopping = spawn(1).stop()
    assert not stopping.cancel()
    stopping.get(timeout=PATIENCE)
