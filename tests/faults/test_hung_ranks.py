"""A rank that hangs: it can be killed, and started again, while the others go on."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.waiting import wait_gone, wait_until
from monarch._core.mesh.bootstrap import BootstrapCommand
from monarch.actor import (
    Actor,
    Point,
    ProcMesh,
    SupervisionError,
    as_endpoint,
    context,
    endpoint,
    this_proc,
)
from monarch.errors import CallTimeoutError
from monarch.supervision import AllForOne, OneForOne

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both

PATIENCE = 30


class StartsWhenTold(Actor):
    """From its second start on it waits for a file."""

    def __init__(self, told: str) -> None:
        if context().actor_instance.incarnation:
            wait_until(Path(told).exists, what=told)


class Hangs(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def incarnation(self) -> int:
        return context().actor_instance.incarnation

    @endpoint
    def hang(self) -> None:
        threading.Event().wait()


def test_a_hung_rank_is_restarted_and_its_callers_are_told_why(spawn: Spawn) -> None:
    procs = spawn({"gpus": 3}, restart=OneForOne())
    workers = procs.spawn("workers", Hangs)
    pids = workers.pid.call().get(timeout=PATIENCE).values()
    hanging = workers.slice(gpus=1).hang.call_one()
    procs.slice(gpus=1).restart("it hangs").get(timeout=PATIENCE)
    with pytest.raises(SupervisionError, match="killed: it hangs"):
        hanging.get(timeout=PATIENCE)
    wait_gone(pids[1])
    assert workers.incarnation.call().get(timeout=PATIENCE).values() == [0, 1, 0]
    again = workers.pid.call().get(timeout=PATIENCE).values()
    assert (again[0], again[2]) == (pids[0], pids[2])
    assert again[1] != pids[1]


def test_ranks_that_have_not_answered_a_call_are_those_that_are_restarted(spawn: Spawn) -> None:
    procs = spawn({"gpus": 4}, restart=OneForOne())
    workers = procs.spawn("workers", Hangs)
    workers.pid.call().get(timeout=PATIENCE)
    workers.select([1, 3]).hang.broadcast()
    asked = workers.pid.call()
    answered: Mapping[Point, int] = {}
    while len(answered) < 2:
        with pytest.raises(CallTimeoutError) as late:
            asked.get(timeout=0.2)
        answered = late.value.values
    procs.without(answered).restart("no answer").get(timeout=PATIENCE)
    with pytest.raises(SupervisionError, match="killed: no answer"):
        asked.get(timeout=PATIENCE)
    assert workers.incarnation.call().get(timeout=PATIENCE).values() == [0, 1, 0, 1]


def test_a_restart_of_procs_that_were_asked_for_just_now_brings_them_up(spawn: Spawn) -> None:
    procs = spawn({"gpus": 2}, restart=OneForOne())
    workers = procs.spawn("workers", Hangs)
    procs.slice(gpus=1).restart().get(timeout=PATIENCE)
    assert len(set(workers.pid.call().get(timeout=PATIENCE).values())) == 2


@pytest.mark.processes("threads that wait outside of the engine")
def test_a_proc_that_hangs_at_its_start_is_restarted_and_once_more_meanwhile(
    spawn: Spawn, tmp_path: Path
) -> None:
    procs, workers = hanging_starts(spawn, tmp_path, 2, OneForOne())
    wait_until((tmp_path / "0").exists, what="the start of the process")
    first = procs.restart()
    wait_until((tmp_path / "1").exists, what="the second start")
    procs.restart().get(timeout=PATIENCE)
    first.get(timeout=PATIENCE)
    assert workers.incarnation.call_one().get(timeout=PATIENCE) == 2


@pytest.mark.processes("threads that wait outside of the engine")
def test_a_kill_of_a_proc_that_hangs_at_its_start_is_a_failure(
    spawn: Spawn, tmp_path: Path, faults: Faults
) -> None:
    procs, workers = hanging_starts(spawn, tmp_path, 1, None)
    wait_until((tmp_path / "0").exists, what="the start of the process")
    procs.kill("enough").get(timeout=PATIENCE)
    assert "killed: enough" in str(faults.wait_for(1)[0].report())
    with pytest.raises(ValueError, match="killed: enough"):
        procs.initialized.get(timeout=PATIENCE)
    with pytest.raises(SupervisionError, match="killed: enough"):
        workers.pid.call_one().get(timeout=PATIENCE)


def hanging_starts(
    spawn: Spawn, folder: Path, count: int, restart: OneForOne | None
) -> tuple[ProcMesh, Any]:
    """A proc, the first `count` starts of which leave an empty folder each, and hang; and an actor
    on it.
    """
    hangs = "".join(
        f"mkdir {folder}/{each} 2>/dev/null && exec sleep 600; " for each in range(count)
    )
    start = f"{hangs}exec {sys.executable} -m monarch._core.processes.proc"
    procs = spawn(
        1, bootstrap_command=BootstrapCommand("/bin/sh", None, ("-c", start)), restart=restart
    )
    return procs, procs.spawn("workers", Hangs)


def test_a_restart_takes_those_along_that_the_strategy_says(spawn: Spawn) -> None:
    procs = spawn({"gpus": 2}, restart=AllForOne())
    workers = procs.spawn("workers", Hangs)
    workers.pid.call().get(timeout=PATIENCE)
    procs.select([1]).restart().get(timeout=PATIENCE)
    assert workers.incarnation.call().get(timeout=PATIENCE).values() == [1, 1]


def test_a_killed_rank_without_a_strategy_is_a_failure_to_its_owner(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn({"gpus": 3})
    workers = procs.spawn("workers", Hangs)
    pids = workers.pid.call().get(timeout=PATIENCE).values()
    procs.slice(gpus=2).kill("enough").get(timeout=PATIENCE)
    wait_gone(pids[2])
    (failure,) = faults.wait_for(1)
    assert list(failure.ranks) == [2]
    assert "killed: enough" in str(failure.report())
    procs.slice(gpus=2).kill().get(timeout=PATIENCE)  # once more, which changes nothing
    assert workers.without(failure.ranks).pid.call().get(timeout=PATIENCE).values() == pids[:2]


def test_what_is_spawned_as_soon_as_its_proc_is_back_does_not_start_again(
    spawn: Spawn, tmp_path: Path
) -> None:
    procs = spawn({"gpus": 2}, restart=OneForOne())
    slow = procs.spawn("slow", StartsWhenTold, str(tmp_path / "go"))
    slow.initialized.get(timeout=PATIENCE)
    procs.slice(gpus=1).restart().get(timeout=PATIENCE)
    workers = procs.spawn("workers", Hangs)
    pids = workers.pid.call().get(timeout=PATIENCE).values()
    (tmp_path / "go").touch()  # until now the restart was under way
    wait_until(
        lambda: "monarch-restart" not in [thread.name for thread in threading.enumerate()],
        what="its end",
    )
    assert workers.incarnation.call().get(timeout=PATIENCE).values() == [0, 0]
    assert workers.pid.call().get(timeout=PATIENCE).values() == pids


def test_a_restart_without_a_strategy_says_where_to_set_one(spawn: Spawn) -> None:
    with pytest.raises(RuntimeError, match=r"spawn_procs\(restart="):
        spawn(2).slice(gpus=0).restart()


def test_a_restart_that_the_strategy_refuses_raises(spawn: Spawn, faults: Faults) -> None:
    procs = spawn({"gpus": 2}, restart=OneForOne(max_restarts=1, within=600))
    workers = procs.spawn("workers", Hangs)
    workers.pid.call().get(timeout=PATIENCE)
    procs.slice(gpus=0).restart().get(timeout=PATIENCE)
    workers.pid.call().get(timeout=PATIENCE)
    with pytest.raises(SupervisionError):
        procs.slice(gpus=0).restart().get(timeout=PATIENCE)
    faults.wait_for(1)


def test_a_slice_of_actors_is_killed_and_restarted_by_way_of_its_procs(spawn: Spawn) -> None:
    procs = spawn({"gpus": 3}, restart=OneForOne())
    workers: Any = procs.spawn("workers", Hangs)
    pids = workers.pid.call().get(timeout=PATIENCE).values()
    hanging = workers.slice(gpus=1).hang.call_one()
    workers.slice(gpus=1).restart("it hangs").get(timeout=PATIENCE)
    with pytest.raises(SupervisionError, match="killed: it hangs"):
        hanging.get(timeout=PATIENCE)
    hanging = workers.slice(gpus=2).hang.call_one()
    workers.without([0, 1]).kill("so does this").get(timeout=PATIENCE)
    with pytest.raises(SupervisionError, match="killed: so does this"):
        hanging.get(timeout=PATIENCE)
    wait_gone(pids[2])
    assert workers.incarnation.call().get(timeout=PATIENCE).values() == [0, 1, 1]
    assert workers.slice(gpus=0).pid.call_one().get(timeout=PATIENCE) == pids[0]


class Process(Actor):
    """Has methods of these names itself."""

    @endpoint
    def kill(self) -> str:
        return "killed"

    def restart(self) -> str:
        return "restarted"


def test_what_a_class_calls_kill_and_restart_is_its_own(spawn: Spawn) -> None:
    process: Any = spawn(1).spawn("process", Process)
    assert process.kill.call_one().get(timeout=PATIENCE) == "killed"
    assert as_endpoint(process.restart).call_one().get(timeout=PATIENCE) == "restarted"
    with pytest.raises(RuntimeError, match="not annotated as an endpoint"):
        process.restart()


def test_a_program_does_not_kill_itself_by_way_of_its_actors() -> None:
    actor: Any = this_proc().spawn("here", Hangs)
    with pytest.raises(RuntimeError, match="in the process of a program"):
        actor.kill()
    actor.stop().get(timeout=PATIENCE)
