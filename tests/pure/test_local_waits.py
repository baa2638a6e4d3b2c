"""Waits of `monarch.testing.local` at what the engine has not made: events, futures, queues."""

from __future__ import annotations

import queue
import threading
from concurrent import futures
from typing import Any

import pytest

from monarch.actor import Actor, SupervisionError, endpoint, pool
from monarch.testing import LocalHosts, local

pytestmark = pytest.mark.timeout(60)


class Door(Actor):
    """Waits for an event that another actor sets."""

    @endpoint
    def pass_through(self, timeout: float | None = None) -> bool:
        return doors[0].wait(timeout)

    @endpoint
    def open(self) -> None:
        doors[0].set()

    @endpoint
    def add_up(self, count: int) -> int:
        with futures.ThreadPoolExecutor(2) as executor:
            done = futures.as_completed(executor.submit(int, each) for each in range(count))
            return sum(each.result() for each in done)


doors: list[threading.Event] = []


@pytest.fixture(autouse=True)
def _door() -> None:
    doors[:] = [threading.Event()]


def door(hosts: LocalHosts, name: str = "door") -> Any:
    return hosts.spawn_procs().slice(hosts=0).spawn(name, Door)


def test_an_actor_that_waits_for_an_event_lets_another_set_it(monarch_local: LocalHosts) -> None:
    waiting = door(monarch_local).pass_through.call_one()
    door(monarch_local).open.call_one().get()
    assert waiting.get()


def test_a_wait_for_an_event_ends_by_the_clock_of_the_hosts(monarch_local: LocalHosts) -> None:
    waiting = door(monarch_local).pass_through.call_one(3600)
    assert not doors[0].wait(1800)
    assert monarch_local.now == 1800
    assert not doors[0].wait(0)
    assert not waiting.get()
    assert monarch_local.now == 3600


def test_the_test_waits_for_an_event_that_a_callback_sets(monarch_local: LocalHosts) -> None:
    answer = door(monarch_local).pass_through.call_one(60)
    answer.add_done_callback(lambda _: doors[0].set())
    assert doors[0].wait()
    assert monarch_local.now == 60


def test_threads_of_the_test_are_waited_for_as_futures(monarch_local: LocalHosts) -> None:
    passing = door(monarch_local).pass_through
    with futures.ThreadPoolExecutor(3) as executor:
        calls = [executor.submit(passing.call_one().get) for _ in range(3)]
        doors[0].set()
        assert futures.wait(calls).not_done == set()
        assert [call.result() for call in calls] == [True] * 3
    assert door(monarch_local).add_up.call_one(5).get() == 10


def test_futures_of_calls_come_through_a_queue(monarch_local: LocalHosts) -> None:
    ended: queue.Queue[Any] = queue.Queue()
    passing = door(monarch_local).pass_through
    for timeout in (30, 10):
        passing.call_one(timeout).add_done_callback(ended.put)
    assert [ended.get().get() for _ in range(2)] == [False, False]


def test_an_actor_that_waits_for_an_event_is_killed_there(monarch_local: LocalHosts) -> None:
    procs = monarch_local.spawn_procs().slice(hosts=0)
    passing = procs.spawn("door", Door).pass_through.call_one()
    monarch_local.advance(1)
    procs.kill().get()
    with pytest.raises(SupervisionError):
        passing.get()


def test_a_block_ends_though_an_actor_waits_for_an_event() -> None:
    with local() as hosts:
        door(hosts).pass_through.broadcast()
        hosts.advance(1)
    assert not any(each.name == "monarch-actor-door" for each in threading.enumerate())


def test_a_pool_of_actors_gives_its_results(monarch_local: LocalHosts) -> None:
    with pool(monarch_local.spawn_procs(), str) as texts:
        assert list(texts.map(range(20))) == [str(number) for number in range(20)]


def test_a_callback_that_raises_does_not_keep_the_next_from_running(
    monarch_local: LocalHosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: told.append(args.exc_type))
    answer = door(monarch_local).pass_through.call_one(1)
    answer.add_done_callback(lambda _: len(3))  # type: ignore[arg-type]
    answer.add_done_callback(lambda _: doors[0].set())
    doors[0].wait()
    assert told == [TypeError]
