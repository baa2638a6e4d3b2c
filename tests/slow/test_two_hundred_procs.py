"""Many procs on one machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from helpers.actors import Echo, Ranks
from helpers.waiting import is_alive

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 200


def test_two_hundred_procs_spawn_answer_a_call_and_stop_cleanly(spawn: Spawn) -> None:
    start = time.monotonic()
    procs = spawn({"gpus": COUNT})
    echo = procs.spawn("echo", Echo)
    pids = echo.pid.call().get(timeout=120).values()
    answered = time.monotonic()
    assert len(set(pids)) == COUNT
    assert echo.say.call("again").get(timeout=120).values() == ["again"] * COUNT
    stopping = time.monotonic()
    procs.stop().get(timeout=120)
    stopped = time.monotonic()
    assert [pid for pid in pids if is_alive(pid)] == []
    print(f"{COUNT} procs: first answer of all {answered - start:.2f} s, stop {stopped - stopping:.2f} s")


def test_two_hundred_procs_know_their_ranks_and_can_be_sliced(spawn: Spawn) -> None:
    ranks = spawn({"a": 10, "b": 20}).spawn("r", Ranks)
    assert ranks.instance_rank.call().get(timeout=120).values() == [
        {"a": a, "b": b} for a in range(10) for b in range(20)
    ]
    assert ranks.slice(a=3, b=slice(0, 20, 5)).instance_rank.call().get(timeout=60).values() == [
        {"a": 3, "b": b} for b in (0, 5, 10, 15)
    ]
