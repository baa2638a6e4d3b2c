"""What hurts most in Monarch 0.7 when something fails, one to eighteen, and the tests that show
that it does not here.

Each is listed with the tests that hold it; those of this module are what no other one shows.

 1. A mesh with a dead rank, or a stopped one, may be called inside of ``except``: nothing happens
    to the caller.
    faults/test_known_pains.py
        test_calling_what_is_dead_raises_and_does_no_harm
    procs/test_lifecycle.py
        test_calling_a_stopped_mesh_raises_and_harms_nobody
        test_calling_actors_of_stopped_procs_raises_and_harms_nobody
        test_an_actor_that_calls_a_stopped_mesh_gets_the_error_and_serves_on
    procs/test_supervision_basics.py
        test_the_owner_of_a_failed_actor_hears_of_it_once_and_lives_on_if_it_handles_it
 2. A `CancelledError` that escapes an async endpoint is an error of that call.
    procs/test_async_actors.py
        test_an_escaping_cancelled_error_is_an_error_of_the_call_and_the_actor_serves_on
        test_a_cancelled_error_escaping_a_broadcast_is_a_failure
    faults/test_actor_threads.py
        test_an_actor_that_cancels_every_task_of_its_loop_has_failed_and_is_not_silent
    faults/test_failure_matrix.py
        test_what_follows_from
 3. A proc on which an actor failed takes new actors; after a failed controller others can be made.
    procs/test_supervision_basics.py
        test_a_proc_on_which_an_actor_failed_takes_new_actors
        test_an_actor_that_failed_in_the_clients_process_does_not_prevent_new_ones
    procs/test_controllers.py
        test_the_failure_of_one_controller_does_not_prevent_new_ones_nor_harm_others
    faults/test_known_pains.py
        test_controllers_can_be_made_by_anybody_after_others_have_failed_in_every_way
    faults/test_failure_matrix.py
        test_what_follows_from
        test_what_follows_from_an_actor_that_cannot_be_constructed
 4. Stopping busy procs is no fault.
    procs/test_lifecycle.py
        test_stopping_busy_procs_ends_them_within_the_grace_time_and_is_no_fault
        test_a_constructor_that_never_returns_does_not_block_the_stop_of_its_procs
    faults/test_ending.py
        test_what_a_stuck_actor_owned_ends_with_it
 5. After the death of a host everything that one does with it ends soon, and says so.
    faults/test_known_pains.py
        test_what_one_does_with_a_host_that_is_dead_ends_soon_and_says_so
    faults/test_detection.py
        test_a_caller_is_told_of_the_loss_of_the_host_within_a_second
    faults/test_frozen.py
        test_a_host_whose_own_processes_stay_stopped_is_lost_as_a_whole
    faults/test_exit_shutdown.py
        test_it_is_bounded_with
    faults/test_lost_hosts.py
        test_everybody_who_waits_is_told_and_the_rest_is_of_use
    faults/test_lost_hosts_midway.py
        test_spawning_on_it_fails_and_the_other_hosts_have_their_procs
        test_spawning_actors_on_it_fails_there_alone
        test_stopping_ends_within_the_bound_and_is_no_failure
    faults/test_lost_hosts_between.py
        test_actors_of_other_hosts_that_wait_or_own_something_there_are_told
    faults/test_machines.py
        test_a_longer_one_is_the_loss_of_the_host_to_everybody_who_waits
 6. No process outlives its client, neither here nor on hosts that it attached.
    faults/test_lost_clients.py
        test_what_a_client_had_ends_with_it_and_another_client_does_not_notice
        test_what_a_client_had_on_hosts_that_it_reaches_through_another_ends_with_it
        test_clients_that_came_and_went_leave_nothing_on_a_worker
    procs/test_new_user.py
        test_a_client_that_is_killed_leaves_no_process
    faults/test_frozen.py
        test_a_proc_that_is_stopped_does_not_outlive_a_client_that_is_killed
    faults/test_exit_programs.py
        test_a_program_ends_with_its_own_status_and_leaves_nothing
 7. No wait is for ever: lost replies, forgotten ports, calls to oneself, references whose owner is
    gone.
    faults/test_lost_links.py
        test_caller_and_owner_hear_of_a_broken_link_to_a_living_process
    faults/test_forgotten_ports.py
        test_a_caller_is_told_that_its_port_was_forgotten_and_the_actor_serves_on
        test_a_port_that_is_kept_is_forgotten_when_a_later_endpoint_lets_go_of_it
    procs/test_ports.py
        test_an_actor_that_is_stopped_releases_callers_it_never_answered
    procs/test_futures.py
        test_an_actor_that_waits_for_itself_gets_an_error_that_says_what_to_do
    faults/test_deadlocks.py
        test_actors_that_wait_for_each_other_are_told_so_and_go_on
    faults/test_known_pains.py
        test_a_reference_whose_owner_is_gone_says_so_to_everybody_who_calls_it
 8. A fault interrupts whatever the main thread does, exits with status 1, and is not the last to be
    delivered.
    faults/test_exit_faults.py
        test_an_unhandled_fault_ends_a_program_with_status_1_and_one_report_though_it
        test_faults_after_the_first_reach_the_hook_and_are_reported
        test_two_faults_at_once_are_both_reported
    procs/test_supervision_basics.py
        test_a_hook_that_returns_drops_the_fault_and_later_faults_still_arrive
 9. No error vanishes: at the end of the script, of a call that nobody reads, of a task, in
    ``__cleanup__``.
    procs/test_new_user.py
        test_a_fault_at_the_very_end_of_the_script_is_not_lost
    faults/test_ending.py
        test_a_fault_of_the_last_line_is_reported_whatever_else_was_sent_last
    faults/test_unread_errors.py
        test_an_error_that_nobody_reads_is_warned_of_once_when_its_future_goes
        test_what_is_unread_when_the_program_ends_is_told_once
    procs/test_errors.py
        test_a_cleanup_that_raises_is_reported_once_however_the_actor_ended
    faults/test_known_pains.py
        test_the_error_of_a_task_that_nobody_awaits_is_printed
10. A result that has arrived is not lost when the mesh stops or fails before it is read.
    procs/test_futures.py
        test_a_result_that_has_arrived_is_not_lost_when_the_mesh_is_stopped
    procs/test_errors.py
        test_a_result_that_has_arrived_is_not_lost_when_a_rank_dies
11. Exceptions that cannot be pickled or rebuilt are errors of their call, and the actor serves on.
    procs/test_calls.py
        test_an_exception_of_any_make_arrives_as_actor_error_and_the_actor_serves_on
12. `call` fails with the first rank that fails, and tells of all of them.
    procs/test_calls.py
        test_call_does_not_wait_for_slow_ranks_once_one_has_failed
    procs/test_errors.py
        test_the_error_of_a_call_tells_of_every_rank_that_has_failed_by_now
        test_a_call_can_wait_for_all_ranks_although_one_has_failed
13. `choose` picks among those that are alive.
    procs/test_supervision_basics.py
        test_choose_finds_the_ranks_that_are_alive
14. A message over the size limit is an error at once, and the connection goes on.
    procs/test_errors.py
        test_a_message_over_the_limit_fails_at_once_and_the_connection_stays
15. A failure says what failed under the names that the program gave; it can be sent, and nothing
    internal is ever told of.
    faults/test_known_pains.py
        test_a_failure_tells_which_rank_of_which_mesh_an_exception_ended
        test_a_failure_tells_how_a_process_ended_and_what_it_printed_last
        test_failures_can_be_pickled_sent_through_ports_and_returned
        test_a_proc_that_dies_while_it_is_set_up_is_told_of_under_its_own_name
        test_the_error_of_a_bootstrap_function_names_the_procs_it_ran_on
    procs/test_controllers.py
        test_a_controllers_failure_skips_the_hook_and_reaches_its_callers
    procs/test_bootstrap.py
        test_a_proc_that_is_killed_while_idle_is_reported
        test_a_bootstrap_function_that_raises_is_told_to_whoever_uses_the_procs
    procs/test_supervision_basics.py
        test_the_hook_is_called_once_for_each_failed_rank
16. The death of a process is told at once.
    faults/test_detection.py
        test_a_caller_is_told_of_the_death_of_a_proc_at_once
        test_an_actor_that_waits_is_told_of_the_death_of_another_proc_at_once
17. A process that was stopped and goes on has never been away; one that does not can be replaced.
    faults/test_frozen.py
        test_who_goes_on_before_the_timeout_has_never_been_away
        test_a_program_of_which_every_process_was_stopped_goes_on_as_if_nothing_had_been
    faults/test_restarts.py
        test_one_for_one_replaces_a_killed_process_and_leaves_the_others_alone
18. The text of an exception shows the frames of the program and nothing of the engine.
    procs/test_calls.py
        test_the_remote_traceback_does_not_show_the_frames_of_the_engine
    procs/test_errors.py
        test_a_traceback_shows_the_remote_frames_once_and_one_frame_of_the_engine
"""

from __future__ import annotations

import ast
import asyncio
import functools
import itertools
import os
import pickle
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo, open_channel
from helpers.scripts import run_program, run_script
from helpers.waiting import wait_until
from monarch.actor import (
    Accumulator,
    Actor,
    ActorError,
    MeshFailure,
    Port,
    SupervisionError,
    context,
    endpoint,
    get_or_spawn_controller,
    send,
)

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

TESTS = Path(__file__).parent.parent


def listed_tests() -> Iterator[tuple[int, Path, str]]:
    """Number, file and name, for every test in the docstring of this module."""
    item, file = 0, TESTS
    for line in (__doc__ or "").splitlines():
        if match := re.match(r" ?(\d+)\. ", line):
            item = int(match[1])
        elif line.endswith(".py"):
            file = TESTS / line.strip()
        elif (name := line.strip()).startswith("test_"):
            yield item, file, name


def test_every_pain_is_held_by_tests_that_exist() -> None:
    listed = list(listed_tests())
    assert {item for item, _, _ in listed} == set(range(1, 19))
    for file, group in itertools.groupby(
        sorted((file, name) for _, file, name in listed), key=lambda pair: pair[0]
    ):
        there = {
            node.name
            for node in ast.parse(file.read_text()).body
            if isinstance(node, ast.FunctionDef)
        }
        missing = {name for _, name in group} - there
        assert not missing, f"{file} has no {missing}"


# 1: calling what is dead


def uses_of(mesh: Any, rank: int) -> dict[str, Callable[[], list[Any]]]:
    """Every way to call a mesh, and one of its ranks: functions that return futures."""

    def to_a_port() -> list[Any]:
        port, receiver = open_channel()
        send(mesh.pid, (), {}, port=port)
        return [receiver.recv() for _ in range(mesh.extent.nelements)]

    def without_a_port() -> list[Any]:
        send(mesh.pid, (), {})
        return []

    return {
        "call": lambda: [mesh.pid.call()],
        "call_one": lambda: [mesh.slice(gpus=rank).pid.call_one()],
        "choose": lambda: [mesh.slice(gpus=rank).pid.choose()],
        "broadcast": lambda: mesh.pid.broadcast() or [],
        "stream": lambda: list(mesh.pid.stream()),
        "send": to_a_port,
        "send without a port": without_a_port,
        "accumulate": lambda: [
            Accumulator(mesh.pid, 0, lambda total, pid: total + pid).accumulate()
        ],
    }


def waits_of(mesh: Any) -> list[str]:
    """The ways to call it that tell of what is dead: all but the one that nobody can be told of."""
    return [name for name in uses_of(mesh, 1) if name != "send without a port"]


class Victim(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def fail(self) -> None:
        raise ValueError("on purpose")


def refused_uses(mesh: Any, rank: int) -> list[str]:
    """Which ways of calling raise."""
    found = []
    for name, use in uses_of(mesh, rank).items():
        try:
            for future in use():
                future.get()
        except SupervisionError:
            found.append(name)
    return found


class Caller(Actor):
    @endpoint
    def refused(self, mesh: Any, rank: int) -> list[str]:
        return refused_uses(mesh, rank)


class AsyncCaller(Actor):
    @endpoint
    async def refused(self, mesh: Any, rank: int) -> list[str]:
        found = []
        for name, use in uses_of(mesh, rank).items():
            try:
                for future in use():
                    await asyncio.wait_for(future, 20)
            except SupervisionError:
                found.append(name)
        return found


@pytest.mark.parametrize("what", ["a process", "an actor", "the mesh", "the procs"])
def test_calling_what_is_dead_raises_and_does_no_harm(
    spawn: Spawn, faults: Faults, what: str
) -> None:
    procs, others = spawn(3), spawn(1)
    mesh = procs.spawn("victim", Victim)
    callers: list[Any] = [
        others.spawn("caller", Caller), others.spawn("caller", AsyncCaller)
    ]  # fmt: skip
    pids = mesh.pid.call().get().values()
    for caller in callers:
        assert caller.refused.call_one(mesh, 1).get() == []
    if what == "a process":
        os.kill(pids[1], signal.SIGKILL)
    elif what == "an actor":
        mesh.slice(gpus=1).fail.broadcast()
    else:
        (mesh if what == "the mesh" else procs).stop().get()
    deaths = 1 if what.startswith("a") else 0
    faults.wait_for(deaths)
    everything = waits_of(mesh)
    for _ in range(20):
        assert refused_uses(mesh, 1) == everything
        for caller in callers:
            assert caller.refused.call_one(mesh, 1).get() == everything
    if deaths:
        assert [mesh.slice(gpus=rank).pid.call_one().get() for rank in (0, 2)] == [
            pids[0],
            pids[2],
        ]
        assert {mesh.pid.choose().get() for _ in range(20)} <= {pids[0], pids[2]}
    assert len(faults) == deaths


# 3: controllers


class Fragile(Actor):
    def __init__(self, born: bool = True) -> None:
        if not born:
            raise ValueError("not born")

    @endpoint
    def fail(self, kind: type[BaseException]) -> None:
        raise kind("on purpose")


class AsksForControllers(Actor):
    @endpoint
    def ask(self, name: str) -> int:
        return get_or_spawn_controller(name, Echo).get().pid.call_one().get()


@pytest.mark.may_keep("threads", "descriptors")
def test_controllers_can_be_made_by_anybody_after_others_have_failed_in_every_way(
    spawn: Spawn,
) -> None:
    get_or_spawn_controller("raises", Fragile).get().fail.broadcast(ValueError)
    exits = get_or_spawn_controller("exits", Fragile).get().fail.call_one(SystemExit)
    with pytest.raises(SupervisionError):
        exits.get()
    with pytest.raises((ActorError, SupervisionError), match="not born"):
        get_or_spawn_controller("is not born", Fragile, False).get().fail.call_one(ValueError).get()
    asks = spawn(1).spawn("asks", AsksForControllers)
    assert asks.ask.call_one("later").get() == os.getpid()
    assert get_or_spawn_controller("later still", Echo).get().say.call_one(1).get() == 1


# 5: a host that is dead


@pytest.mark.parametrize("who", ["agent", "spawner"])
def test_what_one_does_with_a_host_that_is_dead_ends_soon_and_says_so(who: str) -> None:
    run_program(f"""
        import os, signal, sys, time
        import monarch.actor
        from helpers.actors import Echo
        from helpers.faults import Faults
        from helpers.processes import agent_of, spawner_of
        from helpers.waiting import wait_gone
        from monarch.actor import SupervisionError, shutdown_context, this_host

        def refused(future):
            start = time.monotonic()
            error = future.exception()
            assert isinstance(error, SupervisionError), error
            assert "the host agent is gone" in str(error), error
            assert time.monotonic() - start < 15

        monarch.actor.unhandled_fault_hook = faults = Faults()
        procs = this_host().spawn_procs(per_host={{"gpus": 2}}, name="trainers")
        echo = procs.spawn("echo", Echo)
        pids = echo.pid.call().get().values()
        waiting = echo.say.call("x")
        os.kill({who}_of(pids[0]), signal.SIGKILL)
        faults.wait_for(2)
        assert {{failure.cause for failure in faults.failures}} == {{"host"}}, faults.reports()
        refused(echo.say.call(1))
        refused(procs.spawn("new", Echo).say.call(1))
        refused(procs.slice(gpus=1).spawn("new", Echo).say.call_one(1))
        new = this_host().spawn_procs(per_host={{"gpus": 2}})
        refused(new.initialized)
        refused(new.spawn("echo", Echo).say.call(1))
        start = time.monotonic()
        echo.stop().get()
        new.stop().get()
        procs.stop().get()
        procs.stop().get()
        shutdown_context().get()
        assert time.monotonic() - start < 15
        for pid in pids:
            wait_gone(pid)
        again = this_host().spawn_procs().spawn("echo", Echo)  # a new host
        assert again.say.call_one("again").get() == "again"
        """)


# 7: references whose owner is gone


class Owner(Actor):
    """Lends out what it owns."""

    def __init__(self, procs: Any) -> None:
        self.lent = procs.spawn("lent", Victim)

    @endpoint
    def lend(self) -> Any:
        return self.lent

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def end(self, how: str) -> None:
        if how == "stops itself":
            context().actor_instance.stop("on purpose")
        else:
            raise ValueError("on purpose")


@pytest.mark.parametrize(
    "how", ["stops itself", "is stopped", "fails", "is killed", "is gone with its procs"]
)
def test_a_reference_whose_owner_is_gone_says_so_to_everybody_who_calls_it(
    spawn: Spawn, faults: Faults, how: str
) -> None:
    of_owner, procs, others = spawn(1), spawn(3), spawn(1)
    owner = of_owner.spawn("owner", Owner, procs)
    lent = owner.lend.call_one().get()
    callers: list[Any] = [others.spawn("caller", Caller), others.spawn("caller", AsyncCaller)]
    assert callers[0].refused.call_one(lent, 1).get() == []
    if how in ("stops itself", "fails"):
        owner.end.broadcast(how)
    elif how == "is killed":
        os.kill(owner.pid.call_one().get(), signal.SIGKILL)
    else:
        (owner if how == "is stopped" else of_owner).stop().get()

    def ended(rank: int) -> str:
        error = lent.flatten("rank").slice(rank=rank).pid.call_one().exception()
        return str(error) if isinstance(error, SupervisionError) else ""

    for rank in range(lent.size()):  # each ends by itself
        text = wait_until(
            functools.partial(ended, rank),
            what=f"the end of rank {rank} of what the owner had lent",
        )
        assert "lent" in text
        assert "stopped" in text
    for caller in callers:
        assert caller.refused.call_one(lent, 1).get() == waits_of(lent)
    faults.wait_for(1 if how in ("fails", "is killed") else 0)


# 9: tasks


def test_the_error_of_a_task_that_nobody_awaits_is_printed() -> None:
    result = run_script("""
        import asyncio
        from monarch.actor import Actor, endpoint, this_host

        class Careless(Actor):
            @endpoint
            async def start(self):
                asyncio.create_task(self.work())
                await asyncio.sleep(0)

            async def work(self):
                raise ValueError("in a task")

        this_host().spawn_procs().spawn("careless", Careless).start.call_one().get()
        """)
    assert result.exit_code == 0, str(result)
    assert "ValueError: in a task" in result.stderr, str(result)


# 15: what a failure tells


class OwnError(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class Ends(Actor):
    @endpoint
    def throw(self) -> None:
        raise OwnError(7, "seven")

    @endpoint
    def end_process(self, how: str) -> None:
        print("my last words", flush=True)
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_failure_tells_which_rank_of_which_mesh_an_exception_ended(
    spawn: Spawn, faults: Faults
) -> None:
    mesh = spawn({"hosts": 2, "gpus": 2}).spawn("my trainers", Ends)
    mesh.slice(hosts=1, gpus=0).throw.broadcast()
    (failure,) = faults.wait_for(1)
    assert failure.mesh_name == "my trainers"
    assert failure.mesh is mesh
    assert failure.ranks == [2]
    assert failure.cause == "exception"
    assert isinstance(failure.exception, OwnError)
    assert (failure.exception.code, failure.exception.args) == (7, (7, "seven"))
    assert (failure.exit_code, failure.signal, failure.last_output) == (None, None, ())
    for text in ("my trainers", "'hosts': 1/2", "'gpus': 0/2", "in throw", "seven"):
        assert text in failure.report()
    assert "my trainers" in repr(failure)


@pytest.mark.parametrize(
    ("how", "cause", "exit_code", "number"),
    [("exit", "exited", 3, None), ("kill", "killed", None, signal.SIGKILL)],
)
def test_a_failure_tells_how_a_process_ended_and_what_it_printed_last(
    spawn: Spawn, faults: Faults, how: str, cause: str, exit_code: int | None, number: int | None
) -> None:
    mesh = spawn(2, name="workers").spawn("my trainers", Ends)
    mesh.slice(gpus=1).end_process.broadcast(how)
    (failure,) = faults.wait_for(1)
    assert (failure.mesh_name, failure.mesh, failure.ranks) == ("my trainers", mesh, [1])
    assert (failure.cause, failure.exit_code, failure.signal) == (cause, exit_code, number)
    assert failure.exception is None
    assert "my last words" in failure.last_output
    for text in ("my trainers", "workers", "'gpus': 1/2", "my last words"):
        assert text in failure.report()


class Reports(Actor):
    """Passes on what it hears: through a port at once, as a result when it is asked."""

    def __init__(self, port: Port[MeshFailure], procs: Any) -> None:
        self.port = port
        self.child = procs.spawn("child", Ends)
        self.heard: list[MeshFailure] = []

    @endpoint
    def break_child(self) -> None:
        self.child.slice(gpus=1).throw.broadcast()

    @endpoint
    def failures(self) -> list[MeshFailure]:
        return self.heard

    @endpoint
    def error(self) -> SupervisionError | None:
        error = self.child.slice(gpus=1).throw.call_one().exception()
        return error if isinstance(error, SupervisionError) else None

    def __supervise__(self, failure: MeshFailure) -> bool:
        assert failure.mesh is self.child
        self.port.send(failure)
        self.heard.append(failure)
        return True


def test_failures_can_be_pickled_sent_through_ports_and_returned(spawn: Spawn) -> None:
    port, receiver = open_channel()
    reports = spawn(1).spawn("reports", Reports, port, spawn(2))
    reports.break_child.call_one().get()
    sent: MeshFailure = receiver.recv().get()
    (returned,) = reports.failures.call_one().get()
    for failure in (sent, returned, pickle.loads(pickle.dumps(returned))):
        assert isinstance(failure, MeshFailure)
        assert (failure.mesh_name, failure.ranks, failure.cause) == ("child", [1], "exception")
        assert isinstance(failure.exception, OwnError)
        assert failure.report() == sent.report()
        alive = failure.mesh.slice(gpus=0).throw.call_one()  # the mesh comes along, and can be used
        assert isinstance(alive.exception(), OwnError)
    error = reports.error.call_one().get()
    for copy in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(copy, SupervisionError)
        assert str(copy) == str(error)
        assert copy.endpoint == "child.throw()"
        assert copy.failure.ranks == [1]
        assert isinstance(copy.failure.exception, OwnError)


def test_a_proc_that_dies_while_it_is_set_up_is_told_of_under_its_own_name(
    spawn: Spawn, faults: Faults
) -> None:
    def die_on_rank_1() -> None:
        if context().actor_instance.rank.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    procs = spawn(2, name="workers", bootstrap=die_on_rank_1)
    waiting = procs.spawn("my trainers", Ends).throw.call()
    texts = [str(waiting.exception()), str(procs.initialized.exception())]
    faults.wait_for(1)
    procs.stop().get()
    assert {failure.mesh_name for failure in faults.failures} <= {"my trainers", "workers"}
    for text in (*texts, faults.reports()):
        assert "SIGKILL" in text
        assert "setup" not in text.lower()
    assert "Endpoint call workers.bootstrap() failed, workers[1] has failed" in texts[1]


def test_the_error_of_a_bootstrap_function_names_the_procs_it_ran_on(spawn: Spawn) -> None:
    def fail() -> None:
        raise OwnError(7, "not prepared")

    procs = spawn(2, name="workers", bootstrap=fail)
    for future in (procs.initialized, procs.spawn("my trainers", Ends).throw.call()):
        with pytest.raises(OwnError, match="not prepared") as caught:
            future.get()
        assert "Actor call workers.bootstrap failed." in str(caught.value)
