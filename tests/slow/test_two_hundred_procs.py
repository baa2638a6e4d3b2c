"""Many procs on one machine."""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from helpers.actors import Echo, Ranks
from helpers.printing import PrintsLogs
from helpers.waiting import is_alive

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [pytest.mark.timeout(300), pytest.mark.processes("hundreds of processes")]

COUNT = 200


def test_two_hundred_procs_spawn_answer_a_call_and_stop_cleanly(spawn: Spawn) -> None:
    start = time.monotonic()
    procs = spawn({"gpus": COUNT})
    echo = procs.spawn("echo", Echo)
    pids = echo.pid.call().get().values()
    answered = time.monotonic()
    assert len(set(pids)) == COUNT
    assert echo.say.call("again").get().values() == ["again"] * COUNT
    stopping = time.monotonic()
    procs.stop().get()
    stopped = time.monotonic()
    assert [pid for pid in pids if is_alive(pid)] == []
    print(
        f"{COUNT} procs: first answer of all {answered - start:.2f} s, stop"
        f" {stopped - stopping:.2f} s"
    )


def test_two_hundred_procs_know_their_ranks_and_can_be_sliced(spawn: Spawn) -> None:
    ranks = spawn({"a": 10, "b": 20}).spawn("r", Ranks)
    assert ranks.instance_rank.call().get().values() == [
        {"a": a, "b": b} for a in range(10) for b in range(20)
    ]
    assert ranks.slice(a=3, b=slice(0, 20, 5)).instance_rank.call().get().values() == [
        {"a": 3, "b": b} for b in (0, 5, 10, 15)
    ]


def test_what_two_hundred_procs_print_can_be_read_at_the_client(
    spawn: Spawn, capsys: pytest.CaptureFixture[str]
) -> None:
    """In each of three steps, all print a line of their own, one warns, one fails: a screen full,
    in which nothing is missing.
    """
    procs = spawn({"gpus": COUNT}, name="trainers")
    trainers = procs.spawn("trainers", PrintsLogs)
    procs.logging_option(aggregate_window_sec=1000).get()
    trainers.say_rank.call("loaded shard {rank}").get()
    for step in range(3):
        trainers.say_rank.call(f"step {step} loss 0.{{rank:03}}").get()
        trainers.slice(gpus=7).log.call_one(30, "slow data loader").get()
        trainers.slice(gpus=11).print_traceback.call_one("NaN in gradient").get()
    procs.logging_option().get()
    trainers.say_rank.call("").get()  # behind all that
    captured = capsys.readouterr()
    seen, errors = captured.out, captured.err
    lines = [line for line in seen.splitlines() if re.fullmatch(r"\[trainers [^\]]*\] .+", line)]
    said = Counter[str]()
    for line in lines:
        found = re.fullmatch(
            r"\[trainers (?:gpus )?([0-9,-]+)\] (\w+).*?(?: \((\d+) lines\))?", line
        )
        assert found is not None, line
        ranks = sum(
            int(run.split("-")[-1]) - int(run.split("-")[0]) + 1 for run in found[1].split(",")
        )
        said[found[2]] += int(found[3] or ranks)
    assert said == {"loaded": COUNT, "step": 3 * COUNT}, seen
    assert len(lines) <= 12, seen
    first = next(line for line in lines if "step" in line)
    assert re.fullmatch(r"\[trainers \d+\] step 0 loss 0\.\d{3}", first), "at once"
    assert errors.count("Traceback (most recent call last)") == 3, errors
    assert (
        len(re.findall(r"^\[trainers 11\] ValueError: NaN in gradient$", errors, re.MULTILINE)) == 3
    ), errors
    assert (
        len(re.findall(r"^\[trainers 7\] .*slow data loader( \(2 lines\))?$", errors, re.MULTILINE))
        == 2
    ), errors
    print("\n".join(lines))
