"""`StatePublisher`, `StateFollower`, `StateBoard`: the newest state of who trains, for others."""

from __future__ import annotations

import gc
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("torch", reason="what is published are tensors")

import torch

from helpers.waiting import PATIENCE, wait_until
from monarch.actor import Actor, ActorError, concurrent_endpoint, endpoint, this_proc
from monarch.elastic import StateBoard, StateFollower, StatePublisher

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.torch


class Trains(Actor):
    def __init__(self, board: StateBoard, step: int = 0, value: float = 0.0) -> None:
        self.state = {"a": torch.full((3,), value), "b": torch.full((2, 2), value)}
        self.publisher = StatePublisher(board, self.state, step=step)

    @endpoint
    def step(self, fails_between: bool = False) -> int:
        with self.publisher.writing():
            self.state["a"] += 1
            if fails_between:
                raise ValueError("between two tensors")
            self.state["b"] += 1
        return self.publisher.step

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class Follows(Actor):
    def __init__(self, board: StateBoard) -> None:
        self.state = {"a": torch.zeros(3), "b": torch.zeros(2, 2)}
        self.follower = StateFollower(board, self.state)

    @concurrent_endpoint
    async def pulled(self) -> bool:
        return await self.follower.pull()

    @concurrent_endpoint
    async def newer(self, least: int) -> tuple[int, list[float], str]:
        while self.follower.version < least:
            if not await self.follower.pull():
                await self.follower.changed.wait()
        values = {each for tensor in self.state.values() for each in tensor.flatten().tolist()}
        return self.follower.version, sorted(values), repr(self.follower)

    @concurrent_endpoint
    async def heard(self) -> bool:
        return self.follower.changed.is_set()

    @concurrent_endpoint
    async def close(self) -> bool:
        self.follower.close()
        return self.follower.changed.is_set()


def _board() -> Any:
    return this_proc().spawn("board", StateBoard)


def test_followers_have_each_version_whole(spawn: Spawn) -> None:
    board = _board()
    followers = spawn(2).spawn("follows", Follows, board)
    assert set(followers.pulled.call().get().values()) == {False}  # there is none yet
    waiting = followers.newer.call(0)
    trainer = spawn().spawn("trains", Trains, board)
    told = "<StateFollower of 2 tensors, version 0>"
    assert set(map(str, waiting.get(timeout=PATIENCE).values())) == {str((0, [0.0], told))}
    for step in range(1, 6):
        assert trainer.step.call_one().get() == step
        for version, values, _ in followers.newer.call(step).get(timeout=PATIENCE).values():
            assert (version, values) == (step, [float(step)])
    trainer.step.call_one().get()
    several = [followers.newer.call(6) for _ in range(5)]  # at once
    assert {each[0] for asked in several for each in asked.get().values()} == {6}
    board.stop().get()


def test_a_step_that_fails_between_two_tensors_is_not_seen(spawn: Spawn) -> None:
    board = _board()
    trainer = spawn().spawn("trains", Trains, board)
    follower = spawn().spawn("follows", Follows, board)
    assert follower.newer.call_one(0).get(timeout=PATIENCE)[:2] == (0, [0.0])
    with pytest.raises(ActorError, match="between two tensors"):
        trainer.step.call_one(True).get()
    assert follower.pulled.call_one().get() is False
    assert follower.newer.call_one(0).get()[:2] == (0, [0.0])
    board.stop().get()


@pytest.mark.processes("a trainer is killed")
def test_where_a_trainer_died_followers_keep_what_they_have_until_another_publishes(
    spawn: Spawn, faults: Faults
) -> None:
    board = _board()
    trainer = spawn().spawn("trains", Trains, board, 7, 7.0)
    follower = spawn().spawn("follows", Follows, board)
    assert follower.newer.call_one(7).get(timeout=PATIENCE)[:2] == (7, [7.0])
    os.kill(trainer.pid.call_one().get(), signal.SIGKILL)
    faults.wait_for(1)
    assert follower.pulled.call_one().get(timeout=PATIENCE) is False
    assert follower.newer.call_one(7).get()[:2] == (7, [7.0])
    # it goes on from the checkpoint of an earlier step
    other = spawn().spawn("trains", Trains, board, 5, 5.0)
    wait_until(
        lambda: (
            follower.pulled.call_one().get() or follower.newer.call_one(0).get()[:2] == (5, [5.0])
        ),
        what="the weights of the other trainer",
    )
    other.step.call_one().get()
    wait_until(
        lambda: (
            follower.pulled.call_one().get() or follower.newer.call_one(0).get()[:2] == (6, [6.0])
        ),
        what="its next ones",
    )
    board.stop().get()


def test_a_follower_that_is_asked_no_more_logs_nothing_of_a_board_that_ended(
    spawn: Spawn, caplog: pytest.LogCaptureFixture
) -> None:
    board = _board()
    follower = spawn().spawn("follows", Follows, board)
    assert follower.pulled.call_one().get() is False
    board.stop().get()
    wait_until(lambda: follower.heard.call_one().get(), what="the end of the board")
    follower.stop().get()
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_without_a_board_there_is_no_news_for_ever(spawn: Spawn) -> None:
    board = _board()
    follower = spawn().spawn("follows", Follows, board)
    assert follower.pulled.call_one().get() is False
    waiting = follower.newer.call_one(0)
    board.stop().get()
    with pytest.raises(ActorError, match="board"):
        waiting.get(timeout=PATIENCE)
    with pytest.raises(ActorError, match="board"):
        follower.pulled.call_one().get(timeout=PATIENCE)


def test_a_follower_that_is_closed_hears_nothing(spawn: Spawn) -> None:
    board = _board()
    trainer = spawn().spawn("trains", Trains, board)
    follower = spawn().spawn("follows", Follows, board)
    assert follower.newer.call_one(0).get(timeout=PATIENCE)[0] == 0
    follower.close.call_one().get()
    trainer.step.call_one().get()
    assert follower.newer.call_one(0).get()[:2] == (0, [0.0])
    board.stop().get()


def test_what_can_not_be_followed_or_published_is_refused_at_once() -> None:
    with pytest.raises(TypeError, match=r"'a' is \[1.0\], expected a tensor"):
        # what is refused
        StateFollower(None, {"a": [1.0]})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="world="):
        # what is refused
        StatePublisher(None, {"a": torch.zeros(1)}, sharded=True)  # type: ignore[arg-type]
