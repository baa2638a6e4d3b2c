"""Repeated calls to ranks that die: by SIGKILL, under a restart strategy and without one."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from helpers.attempts import wait_for_attempt
from helpers.scripts import program, run_script
from helpers.waiting import wait_until
from monarch.actor import Actor, SupervisionError, context, endpoint
from monarch.supervision import AllForOne, OneForOne, incarnations

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both

PATIENCE = 30.0


class Worker(Actor):
    def __init__(self, cleanup: float = 0.0) -> None:
        self.cleanup = cleanup
        self.steps = 0

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def step(self, folder: str) -> tuple[int, int]:
        """Tells that it has begun; the first incarnation waits to be killed.

        How often it was asked, and its incarnation.
        """
        self.steps += 1
        incarnation = context().actor_instance.incarnation
        rank = context().actor_instance.rank.rank
        with open(os.path.join(folder, f"{rank}.{incarnation}.{self.steps}"), "w"):
            pass
        while rank == 0 and not incarnation:
            time.sleep(0.01)
        return self.steps, incarnation

    @endpoint
    def die(self, until: int, log: str = "") -> int:
        incarnation = context().actor_instance.incarnation
        if log:
            with open(log, "a") as file:
                file.write("asked\n")
        if incarnation < until:
            os.kill(os.getpid(), signal.SIGKILL)
        return incarnation

    def __cleanup__(self, error: Exception | None) -> None:
        time.sleep(self.cleanup)


def kill_when_begun(mesh: Worker, folder: Path) -> None:
    """SIGKILL for rank 0, in the midst of its first step."""
    wait_until(lambda: (folder / "0.0.1").exists(), what="the first step")
    (pid,) = (int(line) for line in (folder / "pid").read_text().splitlines())
    os.kill(pid, signal.SIGKILL)


def note_pid(mesh: Worker, folder: Path) -> None:
    (folder / "pid").write_text(str(mesh.slice(gpus=0).pid.call_one().get(timeout=PATIENCE)))


def test_a_call_in_flight_is_repeated_by_the_next_incarnation_of_a_killed_rank(
    spawn: Spawn, tmp_path: Path, faults: Faults
) -> None:
    mesh = spawn(2, restart=OneForOne()).spawn("workers", Worker)
    note_pid(mesh, tmp_path)
    call = mesh.step.options(timeout=PATIENCE, retries=3).call(str(tmp_path))
    wait_for_attempt(1, {0})
    kill_when_begun(mesh, tmp_path)
    assert call.get(timeout=PATIENCE).values() == [(1, 1), (1, 0)]  # the other rank was asked once
    assert incarnations(mesh).get(timeout=PATIENCE).values() == [1, 0]
    assert len(faults) == 0


def test_call_one_and_choose_outlive_the_death_of_a_rank(
    spawn: Spawn, tmp_path: Path, faults: Faults
) -> None:
    for adverb in ("call_one", "choose"):
        folder = tmp_path / adverb
        folder.mkdir()
        mesh = spawn(1, restart=OneForOne()).spawn("workers", Worker)
        note_pid(mesh, folder)
        # without a limit on an attempt
        call = getattr(mesh.step.options(retries=1), adverb)(str(folder))
        kill_when_begun(mesh, folder)
        assert call.get(timeout=PATIENCE) == (1, 1)
    assert len(faults) == 0


def test_ranks_that_are_stopped_as_another_has_died_are_asked_again(
    spawn: Spawn, tmp_path: Path, faults: Faults
) -> None:
    mesh = spawn(2, restart=AllForOne(max_restarts=50)).spawn("workers", Worker, 0.3)
    note_pid(mesh, tmp_path)
    call = mesh.step.options(timeout=PATIENCE, retries=4).call(str(tmp_path))
    wait_for_attempt(1, {0})
    kill_when_begun(mesh, tmp_path)
    assert call.get(timeout=PATIENCE).values() == [(1, 1), (1, 0)]
    # it kills both, one incarnation after the other
    repeated = mesh.die.options(timeout=PATIENCE, retries=10).call(2)
    assert min(repeated.get(timeout=PATIENCE).values()) >= 2
    assert len(faults) == 0


def test_a_rank_that_dies_in_each_attempt_is_given_up_with_their_number(
    spawn: Spawn, tmp_path: Path, faults: Faults
) -> None:
    log = tmp_path / "log"
    mesh = spawn(1, restart=OneForOne(max_restarts=100)).spawn("workers", Worker)
    with pytest.raises(SupervisionError, match="3 attempts were made") as caught:
        mesh.die.options(timeout=PATIENCE, retries=2).call(1000, str(log)).get(timeout=PATIENCE)
    assert [point.rank for point in caught.value.by_rank] == [0]
    first = log.read_text().splitlines()
    with pytest.raises(SupervisionError, match="2 attempts were made"):
        mesh.die.options(timeout=PATIENCE, retries=1).call_one(1000, str(log)).get(timeout=PATIENCE)
    both = log.read_text().splitlines()
    # an attempt may have met an incarnation that was being stopped, and not have begun
    assert 1 <= len(first) <= 3
    assert len(both) - len(first) <= 2
    wait_until(lambda: mesh.die.call_one(0).exception(timeout=PATIENCE) is None, what="the restart")
    assert len(log.read_text().splitlines()) == len(both)
    assert len(faults) == 0


def test_a_rank_without_a_restart_strategy_is_not_asked_again(spawn: Spawn, faults: Faults) -> None:
    mesh = spawn(2).spawn("workers", Worker)
    with pytest.raises(SupervisionError, match="1 attempt was made"):
        mesh.slice(gpus=0).die.options(timeout=PATIENCE, retries=3).call_one(1).get(
            timeout=PATIENCE
        )
    for _ in range(5):  # another rank may do it
        assert isinstance(
            mesh.pid.options(timeout=PATIENCE, retries=3).choose().get(timeout=PATIENCE), int
        )
    faults.wait_for(1)


def test_choose_goes_on_to_the_ranks_that_live_when_one_dies(
    spawn: Spawn, tmp_path: Path, faults: Faults
) -> None:
    mesh = spawn(2).spawn("workers", Worker)
    note_pid(mesh, tmp_path)
    step = mesh.step.options(timeout=PATIENCE, retries=1)
    calls = []
    while not (tmp_path / "0.0.1").exists():  # until rank 0 was chosen
        calls.append(step.choose(str(tmp_path)))
        wait_until(
            lambda: calls[-1].done() or (tmp_path / "0.0.1").exists(),
            what="an answer, or that rank 0 has begun",
        )
    kill_when_begun(mesh, tmp_path)
    assert calls[-1].get(timeout=PATIENCE)[1] == 0
    faults.wait_for(1)


def test_a_repeated_call_ends_when_everything_is_shut_down() -> None:
    ended = run_script(
        program(
            """
            import time
            from monarch.actor import Actor, Port, SupervisionError, endpoint, this_host, shutdown_context, Channel
            from monarch.supervision import OneForOne

            class Worker(Actor):
                @endpoint
                def work(self, begun: Port[None]) -> None:
                    begun.send(None)
                    time.sleep(3600)
            """,
            """
            workers = this_host().spawn_procs(restart=OneForOne()).spawn("workers", Worker)
            port, begun = Channel[None].open()
            call = workers.work.options(timeout=3600, retries=1000).call(port)
            begun.recv().get()
            shutdown_context().get()
            assert isinstance(call.exception(timeout=30), SupervisionError), call.exception()
            print("done")
            """,
        )
    )
    assert (ended.stdout, ended.exit_code) == ("done\n", 0), ended
