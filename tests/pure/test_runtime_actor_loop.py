from __future__ import annotations

import asyncio
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from helpers.answers import Wire
from helpers.borrowing import borrowed
from helpers.leaks import nothing_left
from monarch._core.actors.actor_loop import ActorLoop, ReadingSelector, limited_tasks
from monarch._core.calls.future import Future
from monarch._core.calls.promise import Promise

PATIENCE = 20.0


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


@pytest.fixture
def selector() -> Iterator[ReadingSelector]:
    selector = ReadingSelector()
    yield selector
    selector.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


Pair = tuple[socket.socket, socket.socket]


def test_without_a_connection_it_is_a_selector_as_any_other(
    selector: ReadingSelector, pair: Pair
) -> None:
    here, there = pair
    key = selector.register(here, selectors.EVENT_READ)
    assert selector.select(0) == []
    assert selector.select(0.001) == []
    there.send(b"x")
    assert selector.select(PATIENCE) == [(key, selectors.EVENT_READ)]


def test_before_it_would_block_it_reads_the_connection(
    selector: ReadingSelector, wire: Wire
) -> None:
    selector.connection = wire.connection
    wire.answer(0, 1)
    assert selector.select(PATIENCE) == []
    assert wire.arrived == [(0, threading.get_ident()), (1, threading.get_ident())]


def test_where_it_would_not_block_it_reads_nothing(selector: ReadingSelector, wire: Wire) -> None:
    selector.connection = wire.connection
    wire.answer(0)
    assert selector.select(0) == []
    assert selector.select(-1) == []
    assert not wire.arrived


def test_what_it_watches_ends_its_wait_for_the_connection(
    selector: ReadingSelector, wire: Wire, pair: Pair
) -> None:
    here, there = pair
    key = selector.register(here, selectors.EVENT_READ)
    selector.connection = wire.connection
    other = threading.Thread(target=there.send, args=(b"x",))
    other.start()
    assert selector.select(None) == [(key, selectors.EVENT_READ)]
    other.join(PATIENCE)
    wire.answer(0)
    assert selector.select(PATIENCE) == [(key, selectors.EVENT_READ)]


def test_its_wait_ends_in_time_and_not_before(selector: ReadingSelector, wire: Wire) -> None:
    selector.connection = wire.connection
    start = time.monotonic()
    assert selector.select(0.02) == []
    assert time.monotonic() - start >= 0.02


def test_a_connection_that_another_thread_reads_is_left_to_it(
    selector: ReadingSelector, wire: Wire, pair: Pair
) -> None:
    here, there = pair
    key = selector.register(here, selectors.EVENT_READ)
    selector.connection = wire.connection
    wire.answer(0)
    with borrowed(wire.connection) as mine:
        assert mine
        there.send(b"x")
        assert selector.select(PATIENCE) == [(key, selectors.EVENT_READ)]
        here.recv(10)
        assert selector.select(0.001) == []
        assert not wire.arrived
    assert selector.select(PATIENCE) == []
    assert wire.arrived


def test_a_connection_that_is_closed_is_not_waited_for(
    selector: ReadingSelector, wire: Wire, pair: Pair
) -> None:
    here, there = pair
    key = selector.register(here, selectors.EVENT_READ)
    selector.connection = wire.connection
    wire.answer(0)
    wire.connection.close()
    there.send(b"x")
    assert selector.select(PATIENCE) == [(key, selectors.EVENT_READ)]
    assert not wire.arrived


def test_it_gives_the_connection_back_after_each_wait(
    selector: ReadingSelector, wire: Wire
) -> None:
    selector.connection = wire.connection
    for timeout in (0.001, PATIENCE):
        if timeout == PATIENCE:
            wire.answer(0)
        selector.select(timeout)
        with borrowed(wire.connection) as mine:
            assert mine


def test_the_end_of_the_connection_is_told_and_then_it_waits_without(
    selector: ReadingSelector, wire: Wire
) -> None:
    selector.connection = wire.connection
    wire.peer.close()
    assert selector.select(PATIENCE) == []
    with pytest.raises(ConnectionError, match="it closed the connection"):
        wire.futures[0].get(timeout=0)
    assert selector.select(0.001) == []


def test_it_changes_connections_also_where_a_closed_number_is_reused(
    selector: ReadingSelector,
) -> None:
    for _ in range(3):
        one, two = Wire(), Wire()
        try:
            for wire in (one, two, one):
                selector.connection = wire.connection
                wire.answer(0)
                assert selector.select(PATIENCE) == []
            assert [len(one.arrived), len(two.arrived)] == [2, 1]
        finally:
            one.close()
            two.close()
    selector.connection = None


# the loop


@pytest.fixture
def loop() -> Iterator[ActorLoop]:
    loop = ActorLoop()
    yield loop
    loop.close()


async def read(future: Future[Any]) -> Any:
    return await future


def test_a_coroutine_that_awaits_an_answer_reads_it_itself(loop: ActorLoop, wire: Wire) -> None:
    wire.answer(0)
    assert loop.run_until_complete(read(wire.futures[0])) == b"answer"
    assert wire.arrived == [(0, threading.get_ident())]


def test_answers_to_others_are_handed_on(loop: ActorLoop, wire: Wire) -> None:
    async def both() -> list[Any]:
        return list(await asyncio.gather(read(wire.futures[1]), read(wire.futures[0])))

    wire.answer(2, 0, 1)
    assert loop.run_until_complete(both()) == [b"answer"] * 2
    assert wire.futures[2].done()


def test_timers_and_calls_of_other_threads_run_while_the_loop_reads(
    loop: ActorLoop, wire: Wire
) -> None:
    order: list[str] = []

    async def main() -> None:
        waiting = asyncio.ensure_future(read(wire.futures[0]))
        await asyncio.sleep(0)
        await asyncio.sleep(0.005)
        order.append("timer")
        called = asyncio.Event()
        other = threading.Thread(target=loop.call_soon_threadsafe, args=(called.set,))
        other.start()
        await called.wait()
        other.join(PATIENCE)
        order.append("call")
        wire.answer(0)
        assert await waiting == b"answer"
        order.append("answer")

    loop.run_until_complete(asyncio.wait_for(main(), PATIENCE))
    assert order == ["timer", "call", "answer"]


def test_an_answer_that_comes_another_way_ends_the_wait(loop: ActorLoop, wire: Wire) -> None:
    other = threading.Thread(target=Promise.of(wire.futures[0]).resolve, args=(3,))
    other.start()
    assert loop.run_until_complete(read(wire.futures[0])) == 3
    other.join(PATIENCE)
    assert not wire.arrived


def test_timers_that_only_wake_a_sleeper_limit_no_task(loop: ActorLoop) -> None:
    async def main() -> set[object] | None:
        sleeper = asyncio.ensure_future(asyncio.sleep(60))
        waiter = asyncio.ensure_future(asyncio.wait([sleeper], timeout=60))
        await asyncio.sleep(0)
        limited = limited_tasks(loop)
        for task in (sleeper, waiter):
            task.cancel()
        await asyncio.gather(sleeper, waiter, return_exceptions=True)
        return limited

    assert loop.run_until_complete(main()) == set()


def test_a_timer_of_unknown_purpose_may_limit_any_task(loop: ActorLoop) -> None:
    async def main() -> list[set[object] | None]:
        task = asyncio.current_task()
        assert task is not None
        timer = loop.call_later(60, task.cancel)
        before = limited_tasks(loop)
        timer.cancel()
        return [before, limited_tasks(loop)]

    assert loop.run_until_complete(main()) == [None, set()]


@pytest.mark.skipif(not hasattr(asyncio, "timeout"), reason="since Python 3.11")
def test_a_timeout_limits_the_task_that_it_guards(loop: ActorLoop) -> None:
    async def main() -> bool:
        async with asyncio.timeout(60):  # type: ignore[attr-defined]  # since Python 3.11
            return limited_tasks(loop) == {asyncio.current_task()}

    assert loop.run_until_complete(main())
