"""Failures that are not answers: who is told, how often, and what goes on working."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Cleaner, Echo, Failing, open_channel
from helpers.unread import unread_errors
from helpers.waiting import wait_until
from monarch.actor import (
    Actor,
    ActorError,
    MeshFailure,
    Port,
    SupervisionError,
    endpoint,
    this_proc,
)

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both


def test_an_error_in_a_broadcast_ends_the_actor_and_calls_the_clients_hook_once(
    spawn: Spawn, faults: Faults
) -> None:
    failing = spawn(1).spawn("fragile", Failing)
    failing.fail.broadcast("dropped it")
    (failure,) = faults.wait_for(1)
    assert isinstance(failure, MeshFailure)
    assert "dropped it" in failure.report()
    assert "fragile" in failure.report()
    assert "in fail" in failure.report()
    for _ in range(3):
        with pytest.raises(SupervisionError, match="dropped it"):
            failing.alive.call_one().get()
    assert len(faults) == 1


def test_the_other_ranks_work_on_through_slices(spawn: Spawn, faults: Faults) -> None:
    failing = spawn(4).spawn("f", Failing)
    failing.slice(gpus=1).fail.broadcast()
    faults.wait_for(1)
    assert failing.slice(gpus=0).alive.call_one().get()
    assert failing.slice(gpus=slice(2, 4)).alive.call().get().values() == [True, True]
    with pytest.raises(SupervisionError):
        failing.alive.call().get()
    with pytest.raises(SupervisionError):
        failing.slice(gpus=slice(0, 2)).alive.call().get()
    assert failing.slice(gpus=0).alive.call_one().get()
    assert len(faults) == 1


def test_the_error_names_the_actor_and_the_rank(spawn: Spawn, faults: Faults) -> None:
    failing = spawn({"gpus": 4}).spawn("fragile", Failing)
    failing.slice(gpus=2).fail.broadcast("the reason")
    faults.wait_for(1)
    with pytest.raises(SupervisionError) as caught:
        failing.alive.call().get()
    text = str(caught.value)
    assert "fragile" in text
    assert "gpus" in text
    assert "2" in text
    assert "the reason" in text
    assert "fragile" in str(caught.value.endpoint)
    assert "alive" in str(caught.value.endpoint)


def test_the_hook_is_called_once_for_each_failed_rank(spawn: Spawn, faults: Faults) -> None:
    failing = spawn(3).spawn("f", Failing)
    failing.fail.broadcast()
    faults.wait_for(3)
    with pytest.raises(SupervisionError):
        failing.alive.call().get()
    assert len(faults) == 3


def test_choose_finds_the_ranks_that_are_alive(spawn: Spawn, faults: Faults) -> None:
    failing = spawn(3).spawn("f", Failing)
    failing.slice(gpus=0).fail.broadcast()
    faults.wait_for(1)
    for _ in range(20):
        assert failing.alive.choose().get()


def test_a_caller_that_waits_on_an_actor_that_fails_is_told(spawn: Spawn, faults: Faults) -> None:
    class Fragile(Actor):
        def __init__(self) -> None:
            self.kept: list[Port[int]] = []

        @endpoint(explicit_response_port=True)
        def never(self, port: Port[int]) -> None:
            self.kept.append(port)

        @endpoint
        def fail(self) -> None:
            raise ValueError("the reason")

    fragile = spawn(2).spawn("f", Fragile)
    waiting = fragile.never.call()
    streamed = fragile.slice(gpus=1).never.stream()
    fragile.slice(gpus=1).fail.broadcast()
    with pytest.raises(SupervisionError, match="the reason"):
        waiting.get()
    with pytest.raises(SupervisionError, match="the reason"):
        next(streamed).get()
    faults.wait_for(1)


def test_a_failing_constructor_is_reported_without_a_call(spawn: Spawn, faults: Faults) -> None:
    class NeverBorn(Actor):
        def __init__(self) -> None:
            raise ValueError("could not be born")

        @endpoint
        def work(self) -> None: ...

    procs = spawn(1)
    procs.initialized.get()
    never_born = procs.spawn("n", NeverBorn)
    faults.wait_for(1, timeout=10)
    assert "could not be born" in faults.reports()
    assert "__init__" in faults.reports()
    with pytest.raises(SupervisionError, match="could not be born"):
        never_born.work.call_one().get()


def test_a_constructor_that_fails_on_one_rank_leaves_the_others(
    spawn: Spawn, faults: Faults
) -> None:
    class Picky(Actor):
        def __init__(self) -> None:
            from monarch.actor import current_rank

            if current_rank().rank == 1:
                raise ValueError("not on rank 1")

        @endpoint
        def alive(self) -> bool:
            return True

    picky = spawn(3).spawn("p", Picky)
    faults.wait_for(1)
    assert picky.slice(gpus=0).alive.call_one().get()
    assert picky.slice(gpus=2).alive.call_one().get()
    with pytest.raises(SupervisionError, match="not on rank 1"):
        picky.alive.call().get()
    assert len(faults) == 1


def test_the_cleanup_of_a_failed_actor_gets_the_error(spawn: Spawn, faults: Faults) -> None:
    port, receiver = open_channel()
    cleaner = spawn(1).spawn("c", Cleaner, "failed", port)
    cleaner.fail.broadcast()
    name, text = receiver.recv().get()
    assert name == "failed"
    assert "cleaner fails" in text
    faults.wait_for(1)


def test_a_proc_on_which_an_actor_failed_takes_new_actors(spawn: Spawn, faults: Faults) -> None:
    procs = spawn(2)
    failing = procs.spawn("f", Failing)
    neighbour = procs.spawn("e", Echo)
    failing.fail.broadcast()
    faults.wait_for(2)
    assert neighbour.say.call(1).get().values() == [1, 1]
    assert procs.spawn("new", Echo).say.call(2).get().values() == [2, 2]


def test_an_actor_that_failed_in_the_clients_process_does_not_prevent_new_ones(
    faults: Faults,
) -> None:
    failing = this_proc().spawn("f", Failing)
    failing.fail.broadcast()
    faults.wait_for(1)
    echo = this_proc().spawn("e", Echo)
    assert echo.say.call_one(1).get() == 1
    echo.stop().get()


def test_a_death_of_a_process_is_told_at_once_to_callers_and_to_the_hook(
    spawn: Spawn, faults: Faults
) -> None:
    class Dies(Actor):
        @endpoint
        def die(self) -> None:
            os._exit(3)

        @endpoint
        def alive(self) -> bool:
            return True

    dies = spawn(2).spawn("dies", Dies)
    dies.alive.call().get()
    with pytest.raises(SupervisionError, match="3"):
        dies.slice(gpus=1).die.call_one().get()
    faults.wait_for(1)
    assert dies.slice(gpus=0).alive.call_one().get()
    with pytest.raises(SupervisionError):
        dies.alive.call().get()
    assert len(faults) == 1


def supervisor(handles: Any) -> Any:
    """An actor that owns `Failing` children, notes what it hears, and answers its `__supervise__`
    with `handles`.
    """

    class Supervisor(Actor):
        def __init__(self, procs: Any, report: Port[Any]) -> None:
            self.report = report
            self.children = procs.spawn("child", Failing)

        @endpoint
        def break_child(self, rank: int) -> None:
            self.children.slice(gpus=rank).fail.broadcast("child broke")

        @endpoint
        def ask_child(self, rank: int) -> str:
            try:
                return str(self.children.slice(gpus=rank).alive.call_one().get())
            except SupervisionError:
                return "SupervisionError"

        @endpoint
        def alive(self) -> bool:
            return True

        def __supervise__(self, failure: MeshFailure) -> Any:
            self.report.send((failure.mesh_name, failure.report(), str(failure)))
            if isinstance(handles, Exception):
                raise handles
            return handles

    return Supervisor


def test_the_owner_of_a_failed_actor_hears_of_it_once_and_lives_on_if_it_handles_it(
    spawn: Spawn,
) -> None:
    port, receiver = open_channel()
    owner = spawn(1).spawn("owner", supervisor(True), spawn(2), port)
    owner.alive.call_one().get()
    owner.break_child.call_one(1).get()
    mesh_name, report, text = receiver.recv().get()
    assert mesh_name.startswith("child")
    assert "child broke" in report
    assert "child broke" in text
    assert owner.ask_child.call_one(0).get() == "True"
    assert owner.ask_child.call_one(1).get() == "SupervisionError"
    assert owner.ask_child.call_one(1).get() == "SupervisionError"
    assert owner.alive.call_one().get()
    with pytest.raises(TimeoutError):
        receiver.recv().get(timeout=0.2)


@pytest.mark.parametrize("answer", [False, None])
def test_an_owner_that_does_not_handle_a_failure_fails_itself_and_names_the_child(
    spawn: Spawn, faults: Faults, answer: bool | None
) -> None:
    port, receiver = open_channel()
    owner = spawn(1).spawn("owner", supervisor(answer), spawn(2), port)
    owner.break_child.broadcast(0)
    receiver.recv().get()
    (failure,) = faults.wait_for(1)
    for word in ("owner", "child", "child broke"):
        assert word in failure.report()
    with pytest.raises(SupervisionError, match="child broke"):
        owner.alive.call_one().get()
    assert len(faults) == 1


def test_an_owner_whose_supervise_raises_fails_with_both_errors(
    spawn: Spawn, faults: Faults
) -> None:
    port, _ = open_channel()
    owner = spawn(1).spawn("owner", supervisor(KeyError("the supervisor stumbled")), spawn(1), port)
    owner.break_child.broadcast(0)
    (failure,) = faults.wait_for(1)
    for word in ("owner", "the supervisor stumbled", "child broke"):
        assert word in failure.report()


def test_a_holder_of_a_reference_is_not_its_supervisor(spawn: Spawn, faults: Faults) -> None:
    port, receiver = open_channel()

    class Holder(Actor):
        def __init__(self, report: Port[str]) -> None:
            self.report = report

        @endpoint
        def use(self, failing: Failing) -> None:
            failing.fail.broadcast("broken by a holder")

        @endpoint
        def alive(self) -> bool:
            return True

        def __supervise__(self, failure: MeshFailure) -> bool:
            self.report.send(failure.report())
            return True

    procs = spawn(1)
    failing = procs.spawn("f", Failing)
    holder = procs.spawn("h", Holder, port)
    holder.use.call_one(failing).get()
    faults.wait_for(1)
    assert holder.alive.call_one().get()
    with pytest.raises(TimeoutError):
        receiver.recv().get(timeout=0.2)


def test_an_async_owner_supervises_while_one_of_its_endpoints_waits(spawn: Spawn) -> None:
    class Owner(Actor):
        def __init__(self, procs: Any) -> None:
            import asyncio

            self.heard = asyncio.Event()
            self.children = procs.spawn("child", Failing)

        @endpoint
        async def break_child_and_wait(self) -> bool:
            self.children.fail.broadcast()
            await self.heard.wait()
            return True

        async def __supervise__(self, failure: MeshFailure) -> bool:
            self.heard.set()
            return True

    assert spawn(1).spawn("o", Owner, spawn(1)).break_child_and_wait.call_one().get()


def test_abort_and_kill_end_an_actor_with_a_failure_that_gives_the_reason(
    spawn: Spawn, faults: Faults
) -> None:
    class Gives(Actor):
        @endpoint
        def up(self, how: str) -> None:
            from monarch.actor import context

            getattr(context().actor_instance, how)(f"enough by {how}")

    procs = spawn(1)
    for how in ("abort", "kill"):
        procs.spawn("g", Gives).up.broadcast(how)
    faults.wait_for(2)
    assert "enough by abort" in faults.reports()
    assert "enough by kill" in faults.reports()


def test_a_hook_that_returns_drops_the_fault_and_later_faults_still_arrive(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(1)
    for i in range(3):
        procs.spawn("f", Failing).fail.broadcast(f"fault number {i}")
        faults.wait_for(i + 1)
    for i in range(3):
        assert f"fault number {i}" in faults.reports()


def test_an_actor_error_of_a_call_is_no_fault(spawn: Spawn, faults: Faults) -> None:
    failing = spawn(2).spawn("f", Failing)
    with pytest.raises(ActorError):
        failing.fail.call().get()
    with unread_errors() as warned:
        failing.fail.call()
        failing.fail.stream()
        assert failing.alive.call().get().values() == [True, True]
        warned.wait_for(2)
    assert len(faults) == 0


def test_ranks_that_fail_one_after_the_other_are_each_reported(
    spawn: Spawn, faults: Faults
) -> None:
    failing = spawn(3).spawn("f", Failing)
    for rank in (2, 0):
        failing.slice(gpus=rank).fail.broadcast(f"rank {rank}")
        text = f"rank {rank}"

        def reported(text: str = text) -> bool:
            return text in faults.reports()

        wait_until(reported, what=f"the report about {text}")
    assert failing.slice(gpus=1).alive.call_one().get()
    assert len(faults) == 2
