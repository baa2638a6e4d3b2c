"""Meshes that keep running: real deaths, real restarts, under every strategy."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.processes import spawner_of
from helpers.scripts import program, run_script
from helpers.waiting import is_alive, wait_gone, wait_until
from helpers.workers import children_of
from monarch._core.mesh.bootstrap import BootstrapCommand, CommandChoice
from monarch._core.shape import Point
from monarch.actor import (
    Actor,
    ActorError,
    MeshFailure,
    SupervisionError,
    context,
    endpoint,
    this_host,
)
from monarch.supervision import AllForOne, OneForOne, RestForOne, incarnations

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both

PATIENCE = 30


class Worker(Actor):
    """Counts what it was asked; dies in every way."""

    def __init__(self, log: str = "", fail_until: int = 0) -> None:
        self.count = 0
        self.log = log
        incarnation = context().actor_instance.incarnation
        if log:
            with open(log, "a") as file:
                file.write(
                    f"{context().actor_instance.name} {context().actor_instance.rank.rank}"
                    f" {incarnation}\n"
                )
        if 0 < incarnation < fail_until:
            raise ValueError("not yet")

    @endpoint
    def step(self) -> tuple[int, int]:
        self.count += 1
        return self.count, context().actor_instance.incarnation

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def fail(self) -> None:
        raise ValueError("as asked")

    @endpoint
    def kill_process(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @endpoint
    def stop_itself(self) -> None:
        context().actor_instance.stop()

    @endpoint
    def wait_for(self, path: str) -> None:
        wait_until(lambda: os.path.exists(path), what=path)

    def __cleanup__(self, error: Exception | None) -> None:
        if self.log:
            with open(self.log, "a") as file:
                file.write(
                    f"cleanup {context().actor_instance.name}"
                    f" {context().actor_instance.rank.rank}\n"
                )


class SlowToEnd(Worker):
    def __cleanup__(self, error: Exception | None) -> None:
        time.sleep(0.3)


class Relay(Actor):
    @endpoint
    def call(self, mesh: Worker) -> tuple[int, int]:
        return mesh.step.call_one().get(timeout=PATIENCE)


def incarnation_of(mesh: Worker) -> int:
    """Of one actor; 0, too, where it refuses to say."""
    try:
        return mesh.step.call_one().get(timeout=PATIENCE)[1]
    except SupervisionError:
        return 0


def steps(mesh: Worker) -> list[tuple[int, int]]:
    return mesh.step.call().get(timeout=PATIENCE).values()


def pids(mesh: Worker) -> list[int]:
    return mesh.pid.call().get(timeout=PATIENCE).values()


def kill(mesh: Worker, **rank: int) -> None:
    with pytest.raises(SupervisionError):
        mesh.slice(**rank).kill_process.call_one().get(timeout=PATIENCE)


def wait_incarnations(mesh: Worker, wanted: list[int]) -> None:
    def reached() -> bool:
        try:
            return incarnations(mesh).get(timeout=PATIENCE).values() == wanted
        except SupervisionError:  # it is just being replaced
            return False

    wait_until(reached, what=f"incarnations {wanted}")


def test_one_for_one_replaces_a_killed_process_and_leaves_the_others_alone(
    spawn: Spawn, faults: Faults
) -> None:
    mesh = spawn(3, restart=OneForOne()).spawn("workers", Worker)
    before = pids(mesh)
    steps(mesh)
    kill(mesh, gpus=1)
    assert steps(mesh) == [(2, 0), (1, 1), (2, 0)]
    after = pids(mesh)
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] != before[1]
    assert incarnations(mesh).get(timeout=PATIENCE).values() == [0, 1, 0]
    assert len(faults) == 0


def test_one_for_one_replaces_a_failed_actor_in_its_process(spawn: Spawn, faults: Faults) -> None:
    mesh = spawn(2, restart=OneForOne()).spawn("workers", Worker)
    before = pids(mesh)
    mesh.slice(gpus=0).fail.broadcast()
    wait_incarnations(mesh, [1, 0])
    assert steps(mesh) == [(1, 1), (1, 0)]
    assert pids(mesh) == before
    assert len(faults) == 0


@pytest.mark.processes("processes that end while they start")
def test_a_process_is_replaced_before_any_message_to_it(spawn: Spawn, faults: Faults) -> None:
    spawner = spawner_of(pids(spawn(1).spawn("others", Worker))[0])
    others = set(children_of(spawner))
    procs = spawn(1, restart=OneForOne())
    assert procs.initialized.get(timeout=PATIENCE)
    (first,) = set(children_of(spawner)) - others
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: set(children_of(spawner)) - others - {first}, what="its next incarnation")
    assert len(faults) == 0


def test_a_call_of_a_third_process_that_comes_after_a_death_waits_for_the_restart(
    spawn: Spawn, faults: Faults
) -> None:
    mesh = spawn(1, restart=OneForOne(max_restarts=100)).spawn("workers", Worker)
    callers = spawn(2).spawn("callers", Relay)
    for incarnation in range(1, 6):
        callers.call.call(mesh).get(timeout=PATIENCE)
        kill(mesh)
        answers = callers.call.call(mesh).get(timeout=PATIENCE).values()
        assert [answer[1] for answer in answers] == [incarnation, incarnation]
    assert len(faults) == 0


def test_who_was_refused_by_a_process_that_starts_again_can_send_to_it_afterwards(
    spawn: Spawn, faults: Faults
) -> None:
    mesh = spawn(2, restart=AllForOne()).spawn("workers", SlowToEnd)
    other = mesh.slice(gpus=1)
    steps(mesh)
    kill(mesh, gpus=0)
    refused = 0
    while incarnation_of(other) == 0:
        refused += 1
    assert refused
    other.step.broadcast()
    assert steps(other)[0][0] >= 2
    assert len(faults) == 0


def test_all_for_one_gives_every_rank_a_new_process(
    spawn: Spawn, tmp_path: Path, faults: Faults
) -> None:
    log = tmp_path / "log"
    procs = spawn(2, restart=AllForOne())
    first, second = procs.spawn("first", Worker, str(log)), procs.spawn("second", Worker, str(log))
    before = pids(first)
    steps(first), steps(second)
    second.slice(gpus=0).fail.broadcast()
    wait_incarnations(first, [1, 1])
    wait_incarnations(second, [1, 1])
    assert steps(first) == steps(second) == [(1, 1), (1, 1)]
    assert not set(pids(first)) & set(before)
    lines = log.read_text().splitlines()
    assert sorted(line for line in lines if line.startswith("cleanup")) == [
        "cleanup first 0", "cleanup first 1", "cleanup second 0", "cleanup second 1",
    ]  # fmt: skip
    assert len(faults) == 0


def test_rest_for_one_restarts_what_came_later(spawn: Spawn, faults: Faults) -> None:
    procs = spawn(2, restart=RestForOne())
    meshes = [procs.spawn(name, Worker) for name in ("store", "trainers", "loggers")]
    before = pids(meshes[0])
    for mesh in meshes:
        steps(mesh)
    meshes[1].slice(gpus=1).fail.broadcast()
    wait_incarnations(meshes[2], [1, 1])
    assert [steps(mesh) for mesh in meshes] == [
        [(2, 0), (2, 0)],
        [(2, 0), (1, 1)],
        [(1, 1), (1, 1)],
    ]
    assert pids(meshes[0]) == before
    assert len(faults) == 0


def test_several_proc_meshes_may_share_one_strategy(spawn: Spawn, faults: Faults) -> None:
    group = AllForOne()
    one = spawn(1, restart=group).spawn("one", Worker)
    two = spawn(1, restart=group).spawn("two", Worker)
    steps(one), steps(two)
    kill(one, gpus=0)
    wait_incarnations(two, [1])
    assert steps(one) == steps(two) == [(1, 1)]
    assert len(faults) == 0


class Caller(Actor):
    """Holds a reference to somebody else's workers."""

    def __init__(self, workers: Worker) -> None:
        self.workers = workers

    @endpoint
    def steps(self) -> list[tuple[int, int]]:
        return steps(self.workers)


def test_a_holder_of_a_reference_reaches_the_new_incarnation(spawn: Spawn, faults: Faults) -> None:
    mesh = spawn(2, restart=OneForOne()).spawn("workers", Worker)
    holder = spawn(1).spawn("holder", Caller, mesh)
    assert holder.steps.call_one().get(timeout=PATIENCE) == [(1, 0), (1, 0)]
    kill(mesh, gpus=1)

    def reached() -> list[tuple[int, int]]:
        try:
            return holder.steps.call_one().get(timeout=PATIENCE)
        except (SupervisionError, ActorError):  # its connection to the old one may be lost only now
            return []

    count, incarnation = wait_until(reached, what="an answer of the new incarnation")[1]
    assert incarnation == 1
    assert holder.steps.call_one().get(timeout=PATIENCE)[1] == (count + 1, 1)
    assert len(faults) == 0


def test_a_call_in_flight_fails_and_one_that_comes_during_the_restart_waits(
    spawn: Spawn, tmp_path: Path
) -> None:
    mesh = spawn(1, restart=AllForOne()).spawn("workers", Worker)
    before = pids(mesh)[0]
    in_flight = mesh.wait_for.call_one(str(tmp_path / "never"))
    os.kill(before, signal.SIGKILL)
    with pytest.raises(SupervisionError):
        in_flight.get(timeout=PATIENCE)
    for adverb in (mesh.pid.call_one, mesh.pid.choose):
        assert adverb().get(timeout=PATIENCE) != before
    mesh.step.broadcast()
    assert steps(mesh)[0] == (2, 1)


def test_many_deaths_in_a_row_are_survived(spawn: Spawn, faults: Faults) -> None:
    mesh = spawn(2, restart=OneForOne(max_restarts=50)).spawn("workers", Worker)
    for number in range(1, 11):
        kill(mesh, gpus=number % 2)
        assert [count for count, _ in steps(mesh)].count(1) >= 1
    assert incarnations(mesh).get(timeout=PATIENCE).values() == [5, 5]
    assert len(faults) == 0


def test_one_death_too_many_is_a_fault_that_says_how_often_it_was_tried(
    spawn: Spawn, faults: Faults
) -> None:
    mesh = spawn(2, restart=OneForOne(max_restarts=2, within=600)).spawn("workers", Worker)
    for _ in range(3):
        kill(mesh, gpus=0)
        if len(faults) == 0:
            wait_until(lambda: len(faults) or alive(mesh), what="the restart, or the end of it")
    (failure,) = faults.wait_for(1)
    assert (failure.mesh_name, failure.ranks, failure.signal) == ("workers", [0], signal.SIGKILL)
    assert "2 restarts within 600s were not enough" in failure.report()
    with pytest.raises(SupervisionError, match="SIGKILL"):
        mesh.slice(gpus=0).step.call_one().get(timeout=PATIENCE)
    assert mesh.slice(gpus=1).step.call_one().get(timeout=PATIENCE)[1] == 0


def alive(mesh: Worker) -> bool:
    return mesh.slice(gpus=0).step.call_one().exception(timeout=PATIENCE) is None


def test_a_wait_for_a_restart_that_is_given_up_ends(spawn: Spawn, faults: Faults) -> None:
    procs = spawn(1, restart=OneForOne(max_restarts=3))
    mesh = procs.spawn("workers", Worker, fail_until=100)
    steps(mesh)
    mesh.fail.broadcast()
    (failure,) = faults.wait_for(1)
    assert isinstance(failure.exception, ValueError)
    assert "3 restarts" in failure.report()
    assert isinstance(mesh.step.call_one().exception(timeout=PATIENCE), SupervisionError)


def test_a_constructor_that_fails_is_tried_again(
    spawn: Spawn, tmp_path: Path, faults: Faults
) -> None:
    log = tmp_path / "log"
    mesh = spawn(1, restart=OneForOne(max_restarts=5)).spawn(
        "workers", Worker, str(log), fail_until=3
    )
    steps(mesh)
    mesh.fail.broadcast()
    wait_incarnations(mesh, [3])
    assert steps(mesh) == [(1, 3)]
    assert [line for line in log.read_text().splitlines() if line.startswith("workers")] == [
        f"workers 0 {number}" for number in range(4)
    ]
    assert len(faults) == 0


def test_an_actor_that_stops_itself_is_not_started_again(spawn: Spawn, faults: Faults) -> None:
    mesh = spawn(1, restart=OneForOne()).spawn("workers", Worker)
    mesh.stop_itself.call_one().exception(timeout=PATIENCE)
    with pytest.raises(SupervisionError, match="stopped"):
        mesh.step.call_one().get(timeout=PATIENCE)
    assert len(faults) == 0


def test_meshes_that_restart_can_be_stopped_at_any_moment(faults: Faults) -> None:
    for delay in (0.0, 0.0, 0.005, 0.02):
        procs = this_host().spawn_procs({"gpus": 2}, restart=AllForOne(max_restarts=100))
        mesh = procs.spawn("workers", Worker)
        living = pids(mesh)
        os.kill(living[0], signal.SIGKILL)
        time.sleep(delay)  # any moment: there is nothing to wait for
        late = mesh.pid.call()
        procs.stop().get(timeout=PATIENCE)
        error = late.exception(timeout=PATIENCE)
        assert error is None or isinstance(error, SupervisionError)
        for pid in living:
            wait_gone(pid)
        with pytest.raises(SupervisionError):
            mesh.step.call().get(timeout=PATIENCE)
    assert len(faults) == 0


def test_an_actor_mesh_that_is_stopped_during_a_restart_stays_stopped(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(1, restart=AllForOne(max_restarts=100))
    kept, stopped = procs.spawn("kept", Worker), procs.spawn("stopped", Worker)
    steps(kept), steps(stopped)
    kill(kept, gpus=0)
    stopped.stop().get(timeout=PATIENCE)
    assert steps(kept)[0] == (1, 1)
    with pytest.raises(SupervisionError):
        stopped.step.call_one().get(timeout=PATIENCE)
    assert len(faults) == 0


def greet() -> None:
    os.environ["GREETED"] = "yes"


class Greeted(Actor):
    @endpoint
    def said(self) -> str | None:
        return os.environ.get("GREETED")

    @endpoint
    def kill_process(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_the_bootstrap_function_runs_again_in_a_new_process(spawn: Spawn) -> None:
    mesh = spawn(2, bootstrap=greet, restart=OneForOne()).spawn("greeted", Greeted)
    with pytest.raises(SupervisionError):
        mesh.slice(gpus=1).kill_process.call_one().get(timeout=PATIENCE)
    assert mesh.said.call().get(timeout=PATIENCE).values() == ["yes", "yes"]


class Boss(Actor):
    """Owns workers that restart; what its strategy gives up reaches its own hook."""

    def __init__(self) -> None:
        procs = this_host().spawn_procs({"gpus": 2}, restart=OneForOne(max_restarts=1, within=600))
        self.workers = procs.spawn("workers", Worker)
        self.heard: list[tuple[str, list[int]]] = []

    @endpoint
    def work(self) -> list[tuple[int, int]]:
        return steps(self.workers)

    @endpoint
    def lose_one(self) -> None:
        kill(self.workers, gpus=1)

    @endpoint
    def hear(self) -> list[tuple[str, list[int]]]:
        return self.heard

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.heard.append((failure.mesh_name, failure.ranks))
        return True


def test_an_actor_may_own_what_restarts_and_handle_what_no_longer_does(
    spawn: Spawn, faults: Faults
) -> None:
    boss = spawn(1).spawn("boss", Boss)
    assert boss.work.call_one().get(timeout=PATIENCE) == [(1, 0), (1, 0)]
    boss.lose_one.call_one().get(timeout=PATIENCE)
    assert boss.work.call_one().get(timeout=PATIENCE) == [(2, 0), (1, 1)]
    boss.lose_one.call_one().get(timeout=PATIENCE)
    wait_until(lambda: boss.hear.call_one().get(timeout=PATIENCE), what="the failure at the boss")
    assert boss.hear.call_one().get(timeout=PATIENCE) == [("workers", [1])]
    assert len(faults) == 0


def test_what_an_actor_started_goes_with_its_incarnation(spawn: Spawn, faults: Faults) -> None:
    boss = spawn(1, restart=OneForOne()).spawn("boss", Owner)
    child = boss.child.call_one().get(timeout=PATIENCE)
    with pytest.raises(SupervisionError):
        boss.kill_process.call_one().get(timeout=PATIENCE)
    wait_gone(child)
    again = boss.child.call_one().get(timeout=PATIENCE)
    assert again != child
    assert is_alive(again)
    assert len(faults) == 0


class Owner(Actor):
    def __init__(self) -> None:
        self.worker = this_host().spawn_procs().spawn("worker", Worker)

    @endpoint
    def child(self) -> int:
        return self.worker.pid.call_one().get(timeout=PATIENCE)

    @endpoint
    def kill_process(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_spawn_procs_takes_a_strategy_and_nothing_else() -> None:
    with pytest.raises(TypeError, match="OneForOne"):
        this_host().spawn_procs({"gpus": 1}, restart="always")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="actor mesh"):
        incarnations("workers")


def test_without_a_strategy_incarnations_are_zero(spawn: Spawn) -> None:
    assert incarnations(spawn(2).spawn("workers", Worker)).get(timeout=PATIENCE).values() == [0, 0]


class Doomed(Worker):
    """Takes its process along when it ends for the first time."""

    def __cleanup__(self, error: Exception | None) -> None:
        if context().actor_instance.incarnation == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies_while_its_actor_starts_again_is_replaced_at_once(
    spawn: Spawn, faults: Faults
) -> None:
    mesh = spawn(2, restart=OneForOne()).spawn("doomed", Doomed)
    steps(mesh)
    mesh.slice(gpus=0).fail.broadcast()
    # well before `pending_actor_delivery_timeout`, which is what a wait for itself takes
    wait_incarnations(mesh, [2, 0])
    assert steps(mesh) == [(1, 2), (2, 0)]
    assert len(faults) == 0


def test_a_mesh_that_is_spawned_during_a_restart_of_its_procs_lives(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(3, restart=AllForOne())
    mesh = procs.spawn("workers", Worker)
    steps(mesh)
    kill(mesh, gpus=0)
    late = procs.spawn("late", Worker)

    def lives() -> bool:
        return late.step.call().exception(timeout=PATIENCE) is None

    wait_until(lives, what="an answer of the mesh that was spawned during a restart")
    assert steps(mesh) == [(1, 1)] * 3
    assert len(faults) == 0


def second_start_waits(
    marker: Path, seconds: float, *, ranks: tuple[int, ...] = (0,)
) -> CommandChoice:
    """A command for each rank; those of `ranks` take their time when they start for the second
    time.
    """
    start = f"exec {sys.executable} -m monarch._core.processes.proc"

    def command(point: Point) -> BootstrapCommand:
        wait = (
            f"mkdir {marker}-{point.rank} 2>/dev/null || sleep {seconds}; "
            if point.rank in ranks
            else ""
        )
        return BootstrapCommand("/bin/sh", None, ("-c", wait + start))

    return command


@pytest.mark.processes("processes that end while they start")
def test_a_mesh_is_initialized_though_one_of_its_procs_was_replaced_meanwhile(
    spawn: Spawn, tmp_path: Path
) -> None:
    (tmp_path / "started-1").mkdir()
    procs = spawn(
        2,
        bootstrap_command=second_start_waits(tmp_path / "started", 2, ranks=(1,)),
        restart=OneForOne(),
    )
    mesh = procs.spawn("workers", Worker)
    first = mesh.slice(gpus=0)
    assert first.step.call_one().get(timeout=PATIENCE) == (1, 0)
    kill(mesh, gpus=0)
    assert first.step.call_one().get(timeout=PATIENCE) == (1, 1)
    assert procs.initialized.get(timeout=PATIENCE)
    assert steps(mesh) == [(2, 1), (1, 0)]


class Starter(Worker):
    """Starts a program and leaves it behind."""

    @endpoint
    def start_program(self, pid_file: str) -> None:
        os.system(f"sleep 600 & echo $! > {pid_file}")


@pytest.mark.processes("processes that end while they start")
def test_a_program_that_a_dead_process_left_behind_does_not_hold_its_address(
    spawn: Spawn, tmp_path: Path, faults: Faults
) -> None:
    mesh = spawn(1, restart=OneForOne()).spawn("starter", Starter)
    mesh.start_program.call_one(str(tmp_path / "pid")).get(timeout=PATIENCE)
    try:
        kill(mesh, gpus=0)
        assert steps(mesh) == [(1, 1)]
    finally:
        with suppress(ProcessLookupError):  # by now it may have gone with the group of the process
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert len(faults) == 0


PROGRAM = """
    import os, signal, sys, time
    import monarch.actor
    from helpers.faults import Faults
    from helpers.processes import agent_of, spawner_of, wait_stopped
    from helpers.waiting import wait_until
    from monarch.actor import Actor, SupervisionError, endpoint, this_host
    from monarch.config import configure
    from monarch.supervision import AllForOne, OneForOne, incarnations

    class Worker(Actor):
        @endpoint
        def pid(self):
            return os.getpid()

        @endpoint
        def kill_process(self):
            os.kill(os.getpid(), signal.SIGKILL)

    def kill(mesh):
        try:
            mesh.kill_process.call_one().get()
        except SupervisionError:
            pass
"""


@pytest.mark.parametrize("who", ["spawner", "agent", "frozen agent"])
def test_what_a_lost_host_ran_is_not_started_again_however_often_it_was(who: str) -> None:
    ended = run_script(
        program(
            PROGRAM,
            f"""
            configure(heartbeat_timeout="2s")
            faults = monarch.actor.unhandled_fault_hook = Faults()
            mesh = this_host().spawn_procs({{"gpus": 1}}, restart=OneForOne(max_restarts=1000)).spawn("workers", Worker)
            kill(mesh)
            pid = mesh.pid.call_one().get()
            who = {who!r}
            if who == "frozen agent":
                os.kill(agent_of(pid), signal.SIGSTOP)
            else:
                os.kill(spawner_of(pid) if who == "spawner" else agent_of(pid), signal.SIGKILL)
            (failure,) = faults.wait_for(1)
            assert (failure.cause, failure.mesh_name, failure.ranks) == ("host", "workers", [0]), failure
            assert "restarts within" not in failure.report(), failure.report()
            error = mesh.pid.call_one().exception(timeout=30)
            assert isinstance(error, SupervisionError), error
            assert len(faults) == 1, faults.reports()
            print("done")
        """,
        )
    )
    assert (ended.stdout, ended.exit_code) == ("done\n", 0), ended
    assert ended.stderr.count("restarting") == 1, ended


def test_a_program_may_end_during_a_restart() -> None:
    ended = run_script(
        program(
            PROGRAM,
            """
            class Slow(Worker):
                def __cleanup__(self, error):
                    time.sleep(0.5)

            mesh = this_host().spawn_procs({"gpus": 2}, restart=AllForOne()).spawn("workers", Slow)
            mesh.pid.call().get()
            kill(mesh.slice(gpus=0))
        """,
        )
    )
    assert ended.exit_code == 0, ended
    assert ended.stderr.count("restarting") == 1, ended
    assert "Traceback" not in ended.stderr, ended
    assert ended.left_behind == [], ended


def test_the_time_out_of_a_first_start_does_not_end_a_later_one(tmp_path: Path) -> None:
    start = (
        f"mkdir {tmp_path}/started 2>/dev/null || sleep 4; exec {sys.executable} -m"
        " monarch._core.processes.proc"
    )
    ended = run_script(
        program(
            PROGRAM,
            f"""
            from monarch._core.mesh.bootstrap import BootstrapCommand

            configure(host_spawn_ready_timeout="7s")
            begun = time.monotonic()
            command = BootstrapCommand("/bin/sh", None, ("-c", {start!r}))
            mesh = this_host().spawn_procs(bootstrap_command=command, restart=OneForOne()).spawn("workers", Worker)
            mesh.pid.call_one().get()
            time.sleep(max(0.0, begun + 3.5 - time.monotonic()))  # the second start goes on when the first one's time is up
            kill(mesh)
            mesh.pid.call_one().get()
            print(incarnations(mesh).get().values())
        """,
        )
    )
    assert (ended.stdout, ended.exit_code) == ("[1]\n", 0), ended


def test_incarnations_may_be_asked_as_soon_as_the_procs_run_again(spawn: Spawn) -> None:
    procs = spawn(2, restart=OneForOne(max_restarts=100))
    mesh = procs.spawn("workers", Worker)
    for times in range(1, 11):
        procs.restart().get()
        assert incarnations(mesh).get().values() == [times, times]
