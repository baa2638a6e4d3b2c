"""What hurts most in Monarch 0.7 when something fails: what no other test shows of `PAINS` in
`tests/promises.py`.
"""

from __future__ import annotations

import asyncio
import functools
import os
import pickle
import signal
from collections.abc import Callable
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

pytestmark = pytest.mark.both

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
        from monarch.config import configure

        # nothing of it waits for a time to be over
        configure(heartbeat_timeout="1h", host_spawn_ready_timeout="1h", stop_actor_timeout="1h", process_exit_timeout="1h")

        def refused(future):
            error = future.exception()
            assert isinstance(error, SupervisionError), error
            assert "the host agent is gone" in str(error), error

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
        echo.stop().get()
        new.stop().get()
        procs.stop().get()
        procs.stop().get()
        shutdown_context().get()
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


def test_the_error_of_a_task_that_is_not_awaited_is_printed() -> None:
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


@pytest.mark.processes("the last output of a process")
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
