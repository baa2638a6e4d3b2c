"""Ends: of actors, of procs, of the program.

Whatever happens at the same time, nothing stays and nothing is kept quiet.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Cleaner, Echo, Failing, open_channel
from helpers.effort import shortened
from helpers.processes import wait_stopped
from helpers.scripts import run_script
from helpers.waiting import is_alive, wait_gone, wait_until
from helpers.workers import SECRET, attached_cluster, children_of, workers
from monarch.actor import (
    Actor,
    Port,
    SupervisionError,
    concurrent_endpoint,
    context,
    endpoint,
    this_host,
    this_proc,
)
from monarch.config import configured

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both

# actors that own procs and do not end by themselves


class Owner(Actor):
    @endpoint
    def own(self) -> int:
        self.procs = this_host().spawn_procs(name="owned")
        self.echo = self.procs.spawn("echo", Echo)
        return self.echo.pid.call_one().get()

    @endpoint
    def block(self, started: Port[bool]) -> None:
        started.send(True)
        time.sleep(600)


class AsyncOwner(Actor):
    def __init__(self, cleaned: str) -> None:
        self.cleaned = cleaned

    @endpoint
    async def own(self) -> int:
        self.procs = this_host().spawn_procs(name="owned")
        self.echo = self.procs.spawn("echo", Echo)
        return await self.echo.pid.call_one()

    @concurrent_endpoint
    async def swallow_cancellations(self, started: Port[bool]) -> None:
        started.send(True)
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass

    @endpoint
    async def fail(self) -> None:
        raise ValueError("on purpose")

    async def __cleanup__(self, exc: Exception | None) -> None:
        with open(self.cleaned, "w") as file:
            file.write(str(exc))


def test_what_a_stuck_actor_owned_ends_with_it(spawn: Spawn) -> None:
    with configured(cleanup_timeout="500ms"):
        owner = spawn(1).spawn("owner", Owner)
        owned = owner.own.call_one().get()
        port, started = open_channel()
        owner.block.broadcast(port)
        started.recv().get()
        owner.stop().get()
        wait_gone(owned)


def test_a_failed_actor_cleans_up_though_one_of_its_tasks_swallows_its_cancellation(
    spawn: Spawn, faults: Faults, tmp_path: Path
) -> None:
    cleaned = tmp_path / "cleaned"
    with configured(cleanup_timeout="500ms"):
        owner = spawn(1).spawn("owner", AsyncOwner, str(cleaned))
        owned = owner.own.call_one().get()
        port, started = open_channel()
        owner.swallow_cancellations.broadcast(port)
        started.recv().get()
        owner.fail.broadcast()
        faults.wait_for(1)
        wait_gone(owned)
        wait_until(cleaned.exists, what="the cleanup")
        wait_until(lambda: "on purpose" in cleaned.read_text(), what="the reason in the cleanup")


def test_an_actor_whose_meshes_are_slow_to_stop_cleans_up_all_the_same(
    spawn: Spawn, faults: Faults
) -> None:
    class SlowChild(Actor):
        @endpoint
        def block(self, started: Port[bool]) -> None:
            started.send(True)
            time.sleep(600)

    class Parent(Cleaner):
        @endpoint
        def own(self, started: Port[bool]) -> None:
            self.procs = this_host().spawn_procs(name="slow")
            self.child = self.procs.spawn("child", SlowChild)
            self.child.block.broadcast(started)

    with configured(stop_actor_timeout="200ms", cleanup_timeout="2s"):
        report, cleaned = open_channel()
        port, started = open_channel()
        parent = spawn(1).spawn("parent", Parent, "parent", report)
        parent.own.call_one(port).get()
        started.recv().get()
        parent.fail.broadcast()
        name, reason = cleaned.recv().get()
    assert name == "parent"
    assert "cleaner fails" in reason
    faults.wait_for(1)


class CleansUpSlowly(Actor):
    """Its cleanup has begun when `begun` exists, and is through when `path` does."""

    def __init__(self, begun: str, path: str) -> None:
        self.begun = begun
        self.path = path

    @endpoint
    def fail(self) -> None:
        raise ValueError("on purpose")

    def __cleanup__(self, exc: Exception | None) -> None:
        open(self.begun, "w").close()
        time.sleep(0.5)
        open(self.path, "w").close()


def test_procs_that_are_stopped_let_the_cleanup_of_a_failed_actor_finish(
    spawn: Spawn, faults: Faults, tmp_path: Path
) -> None:
    begun, through = tmp_path / "begun", tmp_path / "through"
    procs = spawn(1)
    procs.spawn("cleans", CleansUpSlowly, str(begun), str(through)).fail.broadcast()
    wait_until(begun.exists, what="the begin of the cleanup")
    faults.wait_for(1)  # what is told after the stop is a consequence of it
    procs.stop().get()
    assert through.exists()


def test_an_unhandled_fault_lets_the_failed_actors_cleanup_finish(
    tmp_path: Path,
) -> None:
    through = tmp_path / "through"
    result = run_script(f"""
        import time
        from monarch.actor import Actor, endpoint, this_host

        class Cleans(Actor):
            @endpoint
            def fail(self):
                raise ValueError("on purpose")

            def __cleanup__(self, exc):
                time.sleep(0.3)
                open({str(through)!r}, "w").close()

        this_host().spawn_procs().spawn("cleans", Cleans).fail.broadcast()
        time.sleep(600)
        """)
    assert result.exit_code == 1, str(result)
    assert "on purpose" in result.stderr
    assert through.exists()


# calls that race with an actor's end


class Leaves(Actor):
    @endpoint
    def alive(self) -> int:
        return 1

    @endpoint
    def leave(self) -> None:
        context().actor_instance.stop()


class LeavesAsync(Actor):
    @endpoint
    async def alive(self) -> int:
        return 1

    @endpoint
    async def leave(self) -> None:
        context().actor_instance.stop()


class SwitchesFast(Actor):
    @endpoint
    def switch_fast(self) -> None:
        sys.setswitchinterval(1e-6)


class Floods(Actor):
    @endpoint
    def flood(self, leaves: Any, count: int) -> int:
        """Calls while the actor leaves; how many were neither answered nor refused."""
        calls = [leaves.alive.call_one() for _ in range(count)]
        try:
            leaves.leave.broadcast()
            calls += [leaves.alive.call_one() for _ in range(count)]
        except Exception:
            pass  # it is known to be gone
        end = time.monotonic() + 10
        lost = 0
        for call in calls:
            try:
                call.exception(timeout=max(0.0, end - time.monotonic()))
            except TimeoutError:
                lost += 1
        return lost


@pytest.mark.parametrize("kind", [Leaves, LeavesAsync])
def test_every_call_that_races_with_the_end_of_an_actor_is_answered_or_refused(
    spawn: Spawn, kind: type[Leaves]
) -> None:
    procs = spawn(1, name="leaves")
    procs.spawn("fast", SwitchesFast).switch_fast.call_one().get()
    floods = spawn(3, name="floods").spawn("floods", Floods)
    for _ in range(shortened(60, 20)):
        assert floods.flood.call(procs.spawn("leaves", kind), 40).get().values() == [
            0,
            0,
            0,
        ]


def test_an_actor_that_is_stopped_while_its_procs_start_does_not_live_on(spawn: Spawn) -> None:
    survivors = 0
    for _ in range(12):
        procs = this_host().spawn_procs()
        echo = procs.spawn("echo", Echo)
        early = echo.say.call_one("answered or refused, as the race goes")
        echo.stop().get()
        survivors += echo.say.call_one("alive").exception() is None
        early.exception()
        procs.stop().get()
    assert survivors == 0


class SpawnsOnAndOn(Actor):
    @endpoint
    async def spawn_on_and_on(self, pids: Port[int]) -> None:
        while True:
            procs = this_host().spawn_procs(name="many")
            pids.send(await procs.spawn("echo", Echo).pid.call_one())
            await asyncio.sleep(0.01)


def test_an_actor_that_is_stopped_while_it_spawns_leaves_no_procs(spawn: Spawn) -> None:
    spawns = spawn(1).spawn("spawns", SpawnsOnAndOn)
    port, receiver = open_channel()
    spawns.spawn_on_and_on.broadcast(port)
    pids = [receiver.recv().get() for _ in range(4)]
    spawns.stop().get()
    try:
        while True:
            pids.append(receiver.recv().get(timeout=0.3))
    except TimeoutError:
        pass
    wait_until(
        lambda: not any(is_alive(pid) for pid in pids), what="the end of all that was spawned"
    )


def test_the_death_of_a_process_is_reported_though_an_actor_on_it_had_failed_before(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(1, name="mortal")
    failing = procs.spawn("failing", Failing)
    pid = procs.spawn("echo", Echo).pid.call_one().get()
    failing.fail.broadcast("the first")
    faults.wait_for(1)
    os.kill(pid, signal.SIGKILL)
    first, second = faults.wait_for(2)
    assert first.mesh_name == "failing"
    assert "the first" in first.report()
    assert second.mesh_name != "failing"
    assert "KILL" in second.report()


# the end of the program


def test_actors_in_the_clients_process_clean_up_when_the_program_ends() -> None:
    result = run_script("""
        from monarch.actor import Actor, endpoint, this_host, this_proc

        class Cleans(Actor):
            def __init__(self, name):
                self.name = name

            @endpoint
            def alive(self):
                return True

            def __cleanup__(self, exc):
                print("cleaned up:", self.name, exc, flush=True)

        here = this_proc().spawn("here", Cleans, "here")
        there = this_host().spawn_procs().spawn("there", Cleans, "there")
        assert here.alive.call_one().get() and there.alive.call_one().get()
        """)
    assert result.exit_code == 0, str(result)
    assert sorted(result.stdout.splitlines()) == [
        "cleaned up: here None",
        "cleaned up: there None",
    ], str(result)


@pytest.mark.parametrize(
    "later", ["", "a.slice(g=1).ok.broadcast()", "a.ok.broadcast()", "a.slice(g=1).ok.call_one()"]
)
def test_a_fault_of_the_last_line_is_reported_after_any_last_message(later: str) -> None:
    result = run_script(f"""
        import time
        from monarch.actor import Actor, endpoint, this_host

        class A(Actor):
            @endpoint
            def fail(self):
                time.sleep(0.15)
                raise ValueError("the last line")

            @endpoint
            def ok(self):
                pass

        a = this_host().spawn_procs(per_host={{"g": 2}}).spawn("a", A)
        a.ok.call().get()
        a.slice(g=0).fail.broadcast()
        {later}
        """)
    assert result.exit_code == 1, str(result)
    assert "the last line" in result.stderr, str(result)
    assert result.left_behind == []


def test_who_waits_for_an_actor_that_the_end_of_the_program_stops_first_is_no_fault() -> None:
    with workers(1) as started:
        result = run_script(
            f"""
            import asyncio
            from monarch.actor import Actor, Channel, attach_to_workers, endpoint, this_host

            class Asked(Actor):
                @endpoint
                async def never(self, begun):
                    begun.send(None)
                    await asyncio.sleep(600)

            class Asker(Actor):
                @endpoint
                def ask(self, asked, begun):
                    asked.never.call_one(begun).get()

            if __name__ == "__main__":
                # what runs on other hosts is stopped before what runs on this one
                hosts = attach_to_workers(workers={started.addresses})
                asked = hosts.spawn_procs().spawn("asked", Asked)
                asker = this_host().spawn_procs().spawn("asker", Asker)
                port, begun = Channel.open()
                asker.ask.broadcast(asked, port)
                begun.recv().get()
            """,
            env={"MONARCH_SECRET": SECRET},
        )
    assert result.exit_code == 0, str(result)
    assert result.stderr == "", str(result)
    assert result.left_behind == []


@pytest.mark.parametrize("breaks", ["os.dup2(write, 2)", "sys.stderr.close()", "sys.stderr = None"])
def test_an_unhandled_fault_ends_the_program_though_nothing_can_be_written_to_stderr(
    breaks: str,
) -> None:
    result = run_script(f"""
        import os, sys, time
        from monarch.actor import Actor, endpoint, this_host

        class A(Actor):
            @endpoint
            def fail(self):
                raise ValueError("on purpose")

        read, write = os.pipe()
        os.close(read)
        {breaks}
        this_host().spawn_procs().spawn("a", A).fail.broadcast()
        time.sleep(600)
        """)
    assert result.exit_code == 1, str(result)
    assert result.left_behind == []


# __cleanup__


class BrokenStderr:
    def write(self, text: str) -> int:
        raise BrokenPipeError("nobody reads this any more")

    def flush(self) -> None:
        raise BrokenPipeError("nobody reads this any more")


class StumblesUnheard(Actor):
    def __init__(self, report: Port[str]) -> None:
        self.report = report
        sys.stderr = BrokenStderr()  # as it is when the host agent has gone

    @endpoint
    def ready(self) -> bool:
        return True

    def __cleanup__(self, exc: Exception | None) -> None:
        self.report.send("sync")
        raise ValueError("nobody will see this")


class StumblesUnheardAsync(StumblesUnheard):
    @endpoint
    async def ready(self) -> bool:
        return True

    async def __cleanup__(self, exc: Exception | None) -> None:  # type: ignore[override]
        self.report.send("async")
        raise ValueError("nobody will see this")


@pytest.mark.parametrize("kind", [StumblesUnheard, StumblesUnheardAsync])
def test_a_cleanup_whose_error_cannot_be_printed_runs_once(spawn: Spawn, kind: Any) -> None:
    port, receiver = open_channel()
    with configured(cleanup_timeout="60s"):
        actor = spawn(1).spawn("a", kind, port)
        assert actor.ready.call_one().get()
    actor.stop().get()
    assert receiver.recv().get()
    with pytest.raises(TimeoutError):
        receiver.recv().get(timeout=0.2)


_let_go = threading.Event()


class EndsWhileItsMessageArrives(Actor):
    def __init__(self, report: Port[str]) -> None:
        self.report = report

    @endpoint
    def stop_yourself(self) -> None:
        context().actor_instance.stop()
        _let_go.wait(20)

    def __cleanup__(self, exc: Exception | None) -> None:
        self.report.send("cleaned up")


def test_an_actor_ends_though_the_thread_that_delivered_its_last_message_is_slow() -> None:
    port, receiver = open_channel()
    mesh: Any = this_proc().spawn("a", EndsWhileItsMessageArrives, port)
    cell: Any = context()._cell.hub.actors[mesh._uid]
    pressure = cell.pressure

    class SlowPressure:
        # the message is in the mailbox; here its receiver handles it already, and ends
        def came(self, *args: Any) -> None:
            wait_until(
                lambda: cell._ending is not None and len(cell._inbox) > 0,
                what="the end of the actor",
            )
            pressure.came(*args)

        def __getattr__(self, name: str) -> Any:
            return getattr(pressure, name)

    cell.pressure = SlowPressure()
    mesh.stop_yourself.broadcast()
    _let_go.set()
    assert receiver.recv().get() == "cleaned up"


class DiesAtOnce(Actor):
    def __init__(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @endpoint
    def never(self) -> None: ...


def test_a_death_is_told_although_the_agent_had_yet_to_hear_that_the_proc_was_up(
    faults: Faults,
) -> None:
    ranks, expected = 4, 0
    for _ in range(10):  # rarely does the agent learn of the end first
        procs = this_host().spawn_procs({"gpus": ranks})
        procs.spawn("short_lived", DiesAtOnce)
        expected += ranks
        faults.wait_for(expected)
        procs.stop().get()
    assert len(faults) == expected


class StartsOver(Actor):
    """Knows no `__supervise__`: its endpoint catches the error, and makes everything anew."""

    def __init__(self) -> None:
        self._make()

    def _make(self) -> None:
        self.procs = this_host().spawn_procs({"gpus": 2})
        self.workers = self.procs.spawn("workers", Echo)

    @endpoint
    def work(self) -> list[int]:
        try:
            self.workers.exit_at_once.call().get()
        except SupervisionError:
            self.procs.stop().get()
            self._make()
        return self.workers.pid.call().get().values()


def test_an_endpoint_that_starts_over_with_new_procs_handled_the_failure(
    spawn: Spawn, faults: Faults
) -> None:
    actor = spawn(1).spawn("starts_over", StartsOver)
    seen = [tuple(actor.work.call_one().get()) for _ in range(3)]
    assert len(set(seen)) == 3
    assert len(faults) == 0


class HoldsTheLock(Actor):
    @endpoint
    def ready(self) -> bool:
        return True

    @endpoint
    def hold(self, seconds: int) -> None:
        ctypes.PyDLL(None).sleep(seconds)


def test_stopping_an_actor_is_bounded_though_its_process_can_say_nothing(spawn: Spawn) -> None:
    with configured(
        cleanup_timeout="200ms", stop_actor_timeout="200ms", process_exit_timeout="200ms"
    ):
        procs = spawn(1)
        mesh = procs.spawn("holds", HoldsTheLock)
        assert mesh.ready.call_one().get()
        mesh.hold.broadcast(600)
        mesh.stop().get()
        procs.stop().get()  # with these limits, not with the usual ones


def test_procs_of_another_host_that_are_stopped_before_their_forks_are_asked_to_end() -> None:
    """What is sent to them waits at their host, and is told of the stop: the way there has ended."""
    with attached_cluster(1, env={"HYPERACTOR_PROCESS_EXIT_TIMEOUT": "60s"}) as cluster:
        other = cluster.hosts.spawn_procs(name="other").spawn("other", Echo)
        assert other.pid.call_one().get()
        (spawner,) = children_of(cluster.workers.agent(0))
        os.kill(spawner, signal.SIGSTOP)
        wait_stopped(spawner)
        procs = cluster.hosts.spawn_procs(name="procs")
        asked = procs.spawn("asked", Echo).pid.call_one()
        stopping = procs.stop()
        assert other.pid.call_one().get()  # the agent has read all of that
        os.kill(spawner, signal.SIGCONT)
        stopping.get()
        assert "stopped by client" in str(asked.exception())
