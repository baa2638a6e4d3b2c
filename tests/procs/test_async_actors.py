"""Actors with async endpoints: one message at a time, unless the endpoint is concurrent; the rules
of mixing.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo, open_channel
from helpers.async_actors import Cancelled, Concurrent, Sequential
from helpers.waiting import wait_until
from monarch.actor import (
    Actor,
    ActorError,
    Port,
    SupervisionError,
    concurrent_endpoint,
    context,
    endpoint,
)

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both

PAUSE = 0.2


@pytest.mark.processes("measures time that passes")
def test_an_async_endpoint_finishes_before_the_next_message_starts(spawn: Spawn) -> None:
    actor = spawn(1).spawn("s", Sequential)
    actor.pause.call_one(0).get()
    start = time.monotonic()
    most = [future.get() for future in [actor.pause.call_one(PAUSE) for _ in range(3)]]
    assert most == [1, 1, 1]
    assert time.monotonic() - start >= 3 * PAUSE * 0.95


def test_concurrent_endpoints_overlap(spawn: Spawn) -> None:
    actor = spawn(1).spawn("c", Concurrent)
    actor.pause.call_one(0).get()
    most = [future.get() for future in [actor.pause.call_one(PAUSE) for _ in range(3)]]
    assert max(most) == 3


def test_concurrent_bodies_start_in_the_order_of_sending(spawn: Spawn) -> None:
    actor = spawn(1).spawn("c", Concurrent)
    futures = [actor.start.call_one(i) for i in range(100)]
    while len(actor.started_so_far.call_one().get()) < 100:
        pass
    assert actor.started_so_far.call_one().get() == list(range(100))
    actor.let_go.call_one().get()
    assert [future.get() for future in futures] == list(range(100))


def test_an_error_in_a_concurrent_endpoint_leaves_the_actor_serving(
    spawn: Spawn,
) -> None:
    actor = spawn(1).spawn("worker", Concurrent)
    with pytest.raises(ActorError, match="concurrent failure") as caught:
        actor.fail.call_one().get()
    assert "worker.fail" in caught.value.message
    assert actor.pause.call_one(0).get() == 1


def test_a_concurrent_endpoint_may_have_an_explicit_port(spawn: Spawn) -> None:
    assert spawn(1).spawn("c", Concurrent).answer.call_one(5).get() == 5


def test_stopping_an_actor_cancels_its_concurrent_endpoints(spawn: Spawn) -> None:
    actor = spawn(1).spawn("c", Concurrent)
    port, receiver = open_channel()
    future = actor.wait_for_ever.call_one(port)
    assert receiver.recv().get() == "started"
    actor.stop().get()
    assert receiver.recv().get() == "cancelled"
    with pytest.raises(SupervisionError):
        future.get()


def test_concurrent_endpoint_refuses_what_it_cannot_wrap() -> None:
    def plain(self: Any) -> None: ...

    async def body(self: Any) -> None: ...

    with pytest.raises(ValueError, match="async"):
        concurrent_endpoint(plain)  # type: ignore[arg-type,type-var,unused-ignore]
    with pytest.raises(ValueError, match="endpoint"):
        concurrent_endpoint(endpoint(body))  # type: ignore[arg-type,call-overload,unused-ignore]


def test_mixing_sync_and_async_endpoints_is_refused_at_spawn(spawn: Spawn) -> None:
    class Mixed(Actor):
        @endpoint
        def sync(self) -> None: ...

        @endpoint
        async def not_sync(self) -> None: ...

    with pytest.raises(ValueError, match="Mixed"):
        spawn(1).spawn("m", Mixed)


def test_mixing_through_inheritance_is_refused_too(spawn: Spawn) -> None:
    class Mixed(Echo):
        @endpoint
        async def not_sync(self) -> None: ...

    with pytest.raises(ValueError, match="Mixed"):
        spawn(1).spawn("m", Mixed)


def test_hooks_must_have_the_colour_of_the_endpoints(spawn: Spawn) -> None:
    class SyncWithAsyncCleanup(Actor):
        @endpoint
        def work(self) -> None: ...

        async def __cleanup__(self, exc: Exception | None) -> None: ...

    class SyncWithAsyncSupervise(Actor):
        @endpoint
        def work(self) -> None: ...

        async def __supervise__(self, failure: Any) -> bool:
            return True

    class AsyncWithSyncCleanup(Actor):
        @endpoint
        async def work(self) -> None: ...

        def __cleanup__(self, exc: Exception | None) -> None: ...

    procs = spawn(1)
    for refused in (SyncWithAsyncCleanup, SyncWithAsyncSupervise, AsyncWithSyncCleanup):
        with pytest.raises(ValueError, match=refused.__name__):
            procs.spawn("x", refused)


def test_an_async_actor_may_supervise_with_a_plain_method(spawn: Spawn) -> None:
    class AsyncWithSyncSupervise(Actor):
        @endpoint
        async def work(self) -> int:
            return 1

        def __supervise__(self, failure: Any) -> bool:
            return True

    assert spawn(1).spawn("x", AsyncWithSyncSupervise).work.call_one().get() == 1


def test_a_sync_endpoint_has_no_running_loop_and_may_run_its_own(spawn: Spawn) -> None:
    class Sync(Actor):
        @endpoint
        def loop(self) -> tuple[bool, int]:
            try:
                asyncio.get_running_loop()
                running = True
            except RuntimeError:
                running = False

            async def main() -> int:
                await asyncio.sleep(0)
                return 5

            return running, asyncio.run(main())

    assert spawn(1).spawn("s", Sync).loop.call_one().get() == (False, 5)


def test_the_init_of_an_async_actor_runs_in_its_loop(spawn: Spawn) -> None:
    class Starts(Actor):
        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()
            self.thread = threading.get_ident()
            self.task = asyncio.get_running_loop().create_task(self.work())

        async def work(self) -> str:
            await asyncio.sleep(0)
            return "done in the background"

        @endpoint
        async def result(self) -> tuple[str, bool, bool]:
            return (
                await self.task,
                self.loop is asyncio.get_running_loop(),
                self.thread == threading.get_ident(),
            )

    assert spawn(1).spawn("s", Starts).result.call_one().get() == (
        "done in the background",
        True,
        True,
    )


def test_an_async_actor_awaits_calls_to_others(spawn: Spawn) -> None:
    class Asks(Actor):
        @endpoint
        async def ask(self, echo: Echo) -> tuple[Any, list[Any], list[Any]]:
            one = await echo.slice(gpus=0).say.call_one(1)
            every = (await echo.say.call(2)).values()
            gathered = await asyncio.gather(*(echo.slice(gpus=0).say.call_one(i) for i in range(3)))
            return one, every, list(gathered)

    procs = spawn(2)
    echo = procs.spawn("e", Echo)
    asks = procs.slice(gpus=0).spawn("a", Asks)
    assert asks.ask.call_one(echo).get() == (1, [2, 2], [0, 1, 2])


def test_a_background_task_of_an_actor_runs_while_it_waits_for_messages(spawn: Spawn) -> None:
    class Ticks(Actor):
        def __init__(self, port: Port[int]) -> None:
            self.task = asyncio.get_running_loop().create_task(self.tick(port))

        async def tick(self, port: Port[int]) -> None:
            for i in range(3):
                await asyncio.sleep(0.001)
                port.send(i)

        @endpoint
        async def nothing(self) -> None: ...

    port, receiver = open_channel()
    ticks = spawn(1).spawn("t", Ticks, port)
    assert [receiver.recv().get() for _ in range(3)] == [0, 1, 2]
    ticks.nothing.call_one().get()


def test_the_error_of_a_task_that_an_actor_made_does_not_end_the_actor(spawn: Spawn) -> None:
    class Careless(Actor):
        @endpoint
        async def start(self) -> None:
            async def fail() -> None:
                raise ValueError("nobody looks")

            self.task = asyncio.get_running_loop().create_task(fail())
            await asyncio.sleep(0)

        @endpoint
        async def failed(self) -> bool:
            return self.task.exception() is not None

    careless = spawn(1).spawn("c", Careless)
    careless.start.call_one().get()
    assert careless.failed.call_one().get()


class Bounded(Actor):
    """Says how many of its visits have begun; each ends when it is told to."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.most = self.now = 0
        self.doors: dict[int, asyncio.Event] = {}

    @endpoint(concurrency=3)
    async def visit(self, number: int) -> int:
        self.begun.append(number)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.doors.setdefault(number, asyncio.Event()).wait()
        finally:
            self.now -= 1
        if number == 1:
            raise ValueError("the first")
        return number

    @endpoint
    async def begun_so_far(self) -> list[int]:
        return self.begun

    @endpoint
    async def leave(self, number: int) -> None:
        self.doors.setdefault(number, asyncio.Event()).set()

    @endpoint
    async def most_at_a_time(self) -> int:
        return self.most


def test_concurrency_bounds_overlap_in_order_and_blocks_no_other(
    spawn: Spawn,
) -> None:
    house = spawn(1).spawn("house", Bounded)
    visits = [house.visit.call_one(number) for number in range(6)]
    # later messages, which are not held up
    wait_until(lambda: house.begun_so_far.call_one().get() == [0, 1, 2], what="the first three")
    house.leave.call_one(1).get()  # ends with an error, and makes room as any other
    with pytest.raises(ValueError, match="the first"):
        visits[1].get()
    wait_until(lambda: house.begun_so_far.call_one().get() == [0, 1, 2, 3], what="the fourth")
    for number in (0, 2, 3, 4, 5):
        house.leave.call_one(number).get()
    assert [visit.get() for visit in visits if visit is not visits[1]] == [0, 2, 3, 4, 5]
    assert house.begun_so_far.call_one().get() == [0, 1, 2, 3, 4, 5]
    assert house.most_at_a_time.call_one().get() == 3


def test_calls_that_wait_for_their_turn_are_refused_when_the_actor_stops(spawn: Spawn) -> None:
    house = spawn(1).spawn("house", Bounded)
    visits = [house.visit.call_one(number) for number in range(6)]
    house.begun_so_far.call_one().get()
    house.stop().get()
    for visit in visits:
        with pytest.raises(SupervisionError):
            visit.get()


@pytest.mark.parametrize("value", [0, -1])
def test_a_concurrency_below_one_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        endpoint(concurrency=value)


@pytest.mark.parametrize("value", ["8", 2.0, True])
def test_a_concurrency_is_an_int(value: Any) -> None:
    with pytest.raises(TypeError, match="int"):
        endpoint(concurrency=value)


def test_a_concurrency_is_for_async_endpoints() -> None:
    def visit(self: Any) -> None: ...

    with pytest.raises(ValueError, match="async def visit"):
        endpoint(concurrency=8)(visit)


@pytest.mark.parametrize(
    "name", ["cancel_yourself", "await_something_cancelled", "cancel_concurrently"]
)
def test_an_escaping_cancelled_error_is_an_error_of_the_call_and_the_actor_serves_on(
    spawn: Spawn, name: str
) -> None:
    actor = spawn(1).spawn("c", Cancelled)
    with pytest.raises(ActorError) as caught:
        getattr(actor, name).call_one().get()
    assert "CancelledError" in str(caught.value)
    assert actor.alive.call_one().get()


def test_a_cancelled_error_escaping_a_broadcast_is_a_failure(spawn: Spawn, faults: Faults) -> None:
    actor = spawn(1).spawn("c", Cancelled)
    actor.cancel_yourself.broadcast()
    faults.wait_for(1)
    assert "CancelledError" in faults.reports()


def test_a_class_without_endpoints_counts_as_async(spawn: Spawn) -> None:
    class Quiet(Actor):
        def __init__(self, port: Port[bool]) -> None:
            port.send(asyncio.get_running_loop().is_running())

    port, receiver = open_channel()
    spawn(1).spawn("q", Quiet, port)
    assert receiver.recv().get() is True


def test_the_context_follows_into_tasks_and_worker_threads(spawn: Spawn) -> None:
    class Names(Actor):
        @endpoint
        async def names(self) -> list[str]:
            async def name() -> str:
                return context().actor_instance.name

            return [
                await name(),
                await asyncio.get_running_loop().create_task(name()),
                await asyncio.to_thread(lambda: context().actor_instance.name),
            ]

    assert spawn(1).spawn("my name", Names).names.call_one().get() == ["my name"] * 3


def test_a_concurrent_endpoint_may_await_a_call_to_its_own_actor(spawn: Spawn) -> None:
    class Talks(Actor):
        @concurrent_endpoint
        async def ask(self, me: Any, value: int) -> Any:
            return await me.say.call_one(value)

        @endpoint
        async def say(self, value: int) -> int:
            return value

    actor = spawn(1).spawn("t", Talks)
    assert actor.ask.call_one(actor, 6).get() == 6
