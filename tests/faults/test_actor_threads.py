"""Exceptions that escape where none is expected: an actor either serves on, or has failed and says
why. It never wedges.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo, Failing, open_channel
from helpers.scripts import run_script
from helpers.waiting import wait_until
from monarch.actor import Actor, ActorError, Future, MeshFailure, Port, SupervisionError, endpoint
from monarch.config import configured

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both

LIMIT = 1 << 20
DELIVERY = 0.3  # seconds a sender waits for a receiver that does not read


class Talks(Actor):
    """Gives large answers, and tells when it starts on each."""

    @endpoint
    def large(self, started: Port[float]) -> bytes:
        started.send(time.monotonic())
        return b"x" * 200_000

    @endpoint
    def alive(self) -> bool:
        return True


class TalksAsync(Actor):
    @endpoint
    async def large(self, started: Port[float]) -> bytes:
        started.send(time.monotonic())
        return b"x" * 200_000

    @endpoint
    async def alive(self) -> bool:
        return True


class StopsReading(Actor):
    """Asks a lot, and then its process stops, as if in a debugger."""

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def ask_and_freeze(self, talks: Any, started: Port[float]) -> int:
        futures = [talks.large.call_one(started) for _ in range(100)]
        os.kill(os.getpid(), signal.SIGSTOP)
        return sum(len(future.get()) for future in futures)


@pytest.mark.processes("threads that wait outside of the engine, or vanish")
@pytest.mark.parametrize("kind", [Talks, TalksAsync])
def test_an_actor_whose_caller_does_not_read_its_answers_serves_on(
    spawn: Spawn, kind: type[Talks]
) -> None:
    with configured(message_delivery_timeout=f"{DELIVERY}s", send_buffer_limit=LIMIT):
        talks = spawn(1, name="talks").spawn("talks", kind)
        asks = spawn(1, name="asks").spawn("asks", StopsReading)
        talks.alive.call_one().get()
        frozen = asks.pid.call_one().get()
        port, started = open_channel()
        asked = asks.ask_and_freeze.call_one(talks, port)
        try:
            last = started.recv().get()
            while True:  # until an answer could not be handed over in time
                now = started.recv().get()
                if now - last > DELIVERY * 0.8:
                    break
                last = now
        finally:
            os.kill(frozen, signal.SIGCONT)
        assert asked.get() == 100 * 200_000
        assert talks.alive.call_one().get()


def test_a_hook_for_undeliverable_messages_that_raises_is_a_failure_of_its_actor(
    spawn: Spawn, faults: Faults
) -> None:
    class Hooked(Actor):
        def _handle_undeliverable_message(self, message: Any) -> None:
            raise RuntimeError("a bug in the hook")

        @endpoint
        def hit(self, echo: Echo) -> None:
            echo.show.broadcast("nobody hears this")

        @endpoint
        def alive(self) -> bool:
            return True

    hooked = spawn(1).spawn("hooked", Hooked)
    echo = spawn(1).spawn("echo", Echo)
    echo.say.call_one(1).get()
    echo.stop().get()
    hooked.hit.call_one(echo).get()
    faults.wait_for(1)
    assert "a bug in the hook" in faults.reports()
    with pytest.raises(SupervisionError, match="a bug in the hook"):
        hooked.alive.call_one().get()


class Raises(Actor):
    @endpoint
    def out_of_endpoint(self, kind: str) -> None:
        raise {
            "SystemExit": SystemExit,
            "KeyboardInterrupt": KeyboardInterrupt,
            "GeneratorExit": GeneratorExit,
        }[kind]("on purpose")

    @endpoint
    def take(self, value: Any) -> str:
        return type(value).__name__

    @endpoint
    def alive(self) -> bool:
        return True


class RaisesAsync(Actor):
    @endpoint
    async def out_of_endpoint(self, kind: str) -> None:
        raise {
            "SystemExit": SystemExit,
            "KeyboardInterrupt": KeyboardInterrupt,
            "GeneratorExit": GeneratorExit,
        }[kind]("on purpose")

    @endpoint
    async def take(self, value: Any) -> str:
        return type(value).__name__

    @endpoint
    async def alive(self) -> bool:
        return True


@pytest.mark.parametrize("actor", [Raises, RaisesAsync])
@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit"])
def test_an_exception_that_ends_threads_ends_the_actor_and_everybody_is_told(
    spawn: Spawn, faults: Faults, actor: type[Raises], kind: str
) -> None:
    procs = spawn(1)
    raises = procs.spawn("raises", actor)
    calls: list[Future[Any]] = [raises.out_of_endpoint.call_one(kind), raises.alive.call_one()]
    for call in calls:
        with pytest.raises(SupervisionError, match=kind):
            call.get()
    faults.wait_for(1)
    with pytest.raises(SupervisionError, match=kind):
        raises.alive.call_one().get()
    assert procs.spawn("next", Raises).alive.call_one().get()


class ExitsWhenUnpickled:
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return sys.exit, ("while unpickling",)


@pytest.mark.parametrize("actor", [Raises, RaisesAsync])
def test_an_argument_that_exits_while_unpickled_leaves_no_caller_waiting(
    spawn: Spawn, faults: Faults, actor: type[Raises]
) -> None:
    raises = spawn(1).spawn("raises", actor)
    with pytest.raises(ActorError, match="while unpickling"):
        raises.take.call_one(ExitsWhenUnpickled()).get()
    assert raises.alive.call_one().get()


def test_a_constructor_that_exits_is_a_failure_and_not_a_silence(
    spawn: Spawn, faults: Faults
) -> None:
    class Exits(Actor):
        def __init__(self) -> None:
            sys.exit("no actor today")

        @endpoint
        def alive(self) -> bool:
            return True

    exits = spawn(1).spawn("exits", Exits)
    with pytest.raises(SupervisionError, match="no actor today"):
        exits.alive.call_one().get()
    faults.wait_for(1)


def test_a_supervise_hook_that_exits_is_a_failure_with_both_reasons(
    spawn: Spawn, faults: Faults
) -> None:
    class Owner(Actor):
        def __init__(self, procs: Any) -> None:
            self.child = procs.spawn("child", Failing)

        @endpoint
        def break_child(self) -> None:
            self.child.fail.broadcast("the child broke")

        @endpoint
        def alive(self) -> bool:
            return True

        def __supervise__(self, failure: MeshFailure) -> bool:
            sys.exit("the supervisor left")

    owner = spawn(1).spawn("owner", Owner, spawn(1))
    owner.break_child.broadcast()
    faults.wait_for(1)
    assert "the supervisor left" in faults.reports()
    assert "the child broke" in faults.reports()
    with pytest.raises(SupervisionError, match="the supervisor left"):
        owner.alive.call_one().get()


def test_a_cleanup_that_exits_does_not_hold_up_the_stop(spawn: Spawn) -> None:
    class Exits(Actor):
        @endpoint
        def alive(self) -> bool:
            return True

        def __cleanup__(self, exc: Exception | None) -> None:
            sys.exit(3)

    with configured(cleanup_timeout="60s"):
        exits = spawn(2).spawn("exits", Exits)
        assert exits.alive.call().get().values() == [True, True]
        exits.stop().get()  # not the whole `cleanup_timeout`


class Tasks(Actor):
    @endpoint
    async def start_a_task_that_exits(self) -> None:
        async def leave() -> None:
            raise SystemExit("from a task")

        self.task = asyncio.create_task(leave())
        await asyncio.sleep(60)

    @endpoint
    async def cancel_all_others(self) -> None:
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task():
                task.cancel()

    @endpoint
    async def cancel_yourself_and_return(self) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "returned"

    @endpoint
    async def cancel_yourself_and_wait(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    @endpoint
    async def cancellations(self) -> int:
        task: Any = asyncio.current_task()
        await asyncio.sleep(0)
        return int(task.cancelling()) if hasattr(task, "cancelling") else 0

    @endpoint
    async def fail_in_a_group(self) -> str:
        async def fail() -> None:
            raise ValueError("in a group")

        group: Any = asyncio.TaskGroup()  # type: ignore[attr-defined,unused-ignore]  # Python 3.11
        try:
            async with group:
                group.create_task(fail())
                await asyncio.sleep(60)
        except BaseException as error:
            return type(error).__name__
        return "nothing was raised"


def test_a_task_that_exits_ends_its_actor_with_that_reason(spawn: Spawn, faults: Faults) -> None:
    tasks = spawn(1).spawn("tasks", Tasks)
    with pytest.raises(SupervisionError, match="from a task"):
        tasks.start_a_task_that_exits.call_one().get()
    faults.wait_for(1)
    with pytest.raises(SupervisionError, match="from a task"):
        tasks.cancellations.call_one().get()


def test_an_actor_that_cancels_every_task_of_its_loop_has_failed_and_is_not_silent(
    spawn: Spawn, faults: Faults
) -> None:
    tasks = spawn(1).spawn("tasks", Tasks)
    tasks.cancel_all_others.broadcast()
    faults.wait_for(1)
    with pytest.raises(SupervisionError):
        tasks.cancellations.call_one().get()


def test_an_endpoint_that_cancels_itself_and_returns_disturbs_no_later_one(spawn: Spawn) -> None:
    tasks = spawn(1).spawn("tasks", Tasks)
    for _ in range(3):
        assert tasks.cancel_yourself_and_return.call_one().get() == "returned"
        assert tasks.cancellations.call_one().get() == 0


def test_an_endpoint_that_is_cancelled_disturbs_no_later_one(spawn: Spawn) -> None:
    tasks = spawn(1).spawn("tasks", Tasks)
    for _ in range(3):
        with pytest.raises(ActorError):
            tasks.cancel_yourself_and_wait.call_one().get()
        assert tasks.cancellations.call_one().get() == 0


@pytest.mark.skipif(sys.version_info < (3, 11), reason="task groups are new in Python 3.11")
def test_a_task_group_works_the_same_before_and_after_a_cancelled_endpoint(spawn: Spawn) -> None:
    tasks = spawn(1).spawn("tasks", Tasks)
    assert tasks.fail_in_a_group.call_one().get() == "ExceptionGroup"
    with pytest.raises(ActorError):
        tasks.cancel_yourself_and_wait.call_one().get()
    assert tasks.cancel_yourself_and_return.call_one().get() == "returned"
    assert tasks.fail_in_a_group.call_one().get() == "ExceptionGroup"


@pytest.mark.processes("threads that wait outside of the engine, or vanish")
def test_an_actor_for_which_the_system_has_no_thread_has_failed_and_says_so(
    spawn: Spawn, faults: Faults
) -> None:
    class UsesUpThreads(Actor):
        @endpoint
        def use_up(self) -> None:
            start = threading.Thread.start

            def refuse(thread: threading.Thread) -> None:
                if thread.name == "monarch-actor-late":
                    raise RuntimeError("can't start new thread")
                start(thread)

            setattr(threading.Thread, "start", refuse)  # noqa: B010  # what a full system does

    procs = spawn(1)
    procs.spawn("first", UsesUpThreads).use_up.call_one().get()
    late = procs.spawn("late", Echo)
    with pytest.raises(SupervisionError, match="the actor's thread could not be started"):
        late.say.call_one(1).get()
    faults.wait_for(1)
    assert procs.spawn("other", Echo).say.call_one(1).get() == 1
    late.stop().get()


def test_a_callback_of_a_future_that_exits_does_not_take_the_later_ones_with_it(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_type))
    future = spawn(1).spawn("echo", Echo).say.call_one(1)
    future.get()
    ran: list[int] = []
    future.add_done_callback(lambda _: sys.exit(3))
    future.add_done_callback(lambda done: ran.append(done.get()))
    wait_until(lambda: ran == [1], what="the second callback")
    assert reported == [SystemExit]


class Vanishing(Actor):
    """Has its thread ended by code in C."""

    @endpoint
    def vanish(self) -> None:
        ctypes.CDLL(None).pthread_exit(None)

    @endpoint
    def alive(self) -> bool:
        return True


class VanishingAsync(Actor):
    @endpoint
    async def vanish(self) -> None:
        ctypes.CDLL(None).pthread_exit(None)

    @endpoint
    async def alive(self) -> bool:
        return True


class Asks(Actor):
    """Waits for an answer that can't come, in each way there is."""

    @endpoint
    def wait(self, other: Any, how: str) -> str:
        calls: dict[str, Callable[[], object]] = {
            "call": lambda: other.vanish.call().get(),
            "time limit": lambda: other.vanish.call_one().get(timeout=60),
            "stream": lambda: [answer.get() for answer in other.vanish.stream()],
            "stream, time limit": lambda: [
                answer.get(timeout=60) for answer in other.vanish.stream()
            ],
            "options": lambda: other.vanish.options(timeout=60).call_one().get(),
            "concurrent.futures": lambda: next(as_completed([other.vanish.call_one()])).result(),
            "thread": lambda: self._in_a_thread(lambda: other.vanish.call_one().get()),
        }
        try:
            calls[how]()
        except SupervisionError as error:
            return str(error)
        return "it answered"

    def _in_a_thread(self, wait: Callable[[], object]) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(wait).result()


WAYS = [
    "call",
    "time limit",
    "stream",
    "stream, time limit",
    "options",
    "concurrent.futures",
    "thread",
]


@pytest.mark.processes("threads that wait outside of the engine, or vanish")
@pytest.mark.parametrize("kind", [Vanishing, VanishingAsync])
def test_a_thread_that_vanishes_is_missed_however_an_actor_waits_for_it(
    spawn: Spawn, faults: Faults, kind: type[Vanishing]
) -> None:
    with configured(heartbeat_timeout="200ms"):
        procs = spawn(len(WAYS) + 1)
    home, there = procs.slice(gpus=0), procs.slice(gpus=0).spawn("there", kind)
    futures = {}
    for rank, how in enumerate(WAYS, 1):
        asks = procs.slice(gpus=rank).spawn("asks", Asks)
        futures[how] = asks.wait.call_one(home.spawn("gone", kind), how)
    for how, future in futures.items():
        assert "its thread has vanished" in future.get(), how
    for fault in faults.wait_for(len(WAYS)):
        assert "its thread has vanished" in fault.report()
    assert there.alive.call_one().get(), "only these actors have failed"


def test_a_vanished_thread_is_missed_and_its_actor_may_start_again() -> None:
    ran = run_script(VANISHES, timeout=60)
    assert ran.exit_code == 0, ran
    assert ran.stdout.splitlines() == ["True", "True", "[True, True]"], ran


VANISHES = """
    import ctypes
    from monarch.actor import Actor, SupervisionError, endpoint, this_host
    from monarch.config import configure
    from monarch.supervision import OneForOne

    class Vanishing(Actor):
        @endpoint
        def vanish(self):
            ctypes.CDLL(None).pthread_exit(None)

        @endpoint
        def alive(self):
            return True

    if __name__ == "__main__":
        configure(heartbeat_timeout="2s")
        actors = this_host().spawn_procs({"gpus": 2}, restart=OneForOne()).spawn("vanishing", Vanishing)
        first = actors.slice(gpus=0)
        answers = first.vanish.stream()
        for future in [next(answers), first.alive.call_one()]:
            try:
                print("answered", future.get())
            except SupervisionError as error:
                print("its thread has vanished" in str(error))
        print(actors.alive.call().get().values())
"""
