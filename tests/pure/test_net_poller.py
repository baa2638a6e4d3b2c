from __future__ import annotations

import functools
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.leaks import nothing_left
from helpers.pollers import running_poller, settle
from helpers.waiting import PATIENCE, wait_until
from monarch._core.net.poller import READ, WRITE, Poller, Timer


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def poller() -> Iterator[Poller]:
    with running_poller() as poller:
        yield poller


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    here.setblocking(False)
    with here, there:
        yield here, there


def each(*calls: Callable[[], object]) -> Callable[[], None]:
    """One function that makes several calls."""

    def call() -> None:
        for one in calls:
            one()

    return call


def count_down(count: int) -> tuple[Callable[[], None], threading.Event]:
    """A function, and the event it sets when it has been called `count` times."""
    calls: list[None] = []
    done = threading.Event()

    def call() -> None:
        calls.append(None)
        if len(calls) == count:
            done.set()

    return call, done


# handlers


def test_a_handler_is_called_with_the_events_of_its_descriptor(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    seen: list[tuple[int, bytes]] = []
    done = threading.Event()

    def ready(events: int) -> None:
        seen.append((events, here.recv(100)))
        done.set()

    poller.add(here.fileno(), ready)
    there.send(b"hello")
    assert done.wait(PATIENCE)
    assert seen == [(select.EPOLLIN, b"hello")]
    poller.remove(here.fileno())


def test_a_handler_is_called_again_until_it_has_read_everything(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    read: list[bytes] = []
    done = threading.Event()

    def ready(events: int) -> None:
        read.append(here.recv(1))
        if len(read) == 5:
            done.set()

    poller.add(here.fileno(), ready)
    there.send(b"12345")
    assert done.wait(PATIENCE)
    assert b"".join(read) == b"12345"
    poller.remove(here.fileno())


def test_a_handler_hears_of_writing_only_while_it_asks_for_it(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, _ = pair
    events_seen: list[int] = []
    done = threading.Event()

    def ready(events: int) -> None:
        events_seen.append(events)
        poller.modify(here.fileno(), READ)
        done.set()

    poller.add(here.fileno(), ready)
    settle(poller)
    assert not events_seen
    poller.modify(here.fileno(), READ | WRITE)
    assert done.wait(PATIENCE)
    settle(poller)
    assert events_seen == [WRITE]
    poller.remove(here.fileno())


def test_a_handler_hears_of_the_end_of_its_peer(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    done = threading.Event()

    def ready(events: int) -> None:
        poller.remove(here.fileno())
        if events & select.EPOLLHUP:
            done.set()

    poller.add(here.fileno(), ready)
    there.close()
    assert done.wait(PATIENCE)


def test_a_removed_descriptor_is_not_heard_of_again(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    calls: list[int] = []
    poller.add(here.fileno(), calls.append)
    poller.remove(here.fileno())
    there.send(b"x")
    settle(poller)
    assert not calls


def test_removing_is_harmless_twice_and_after_closing(
    pair: tuple[socket.socket, socket.socket], poller: Poller
) -> None:
    here, _ = pair
    fd = here.fileno()
    poller.add(fd, lambda events: None)
    here.close()
    poller.remove(fd)
    poller.remove(fd)
    settle(poller)


def test_a_handler_may_remove_itself(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    calls: list[int] = []

    def ready(events: int) -> None:
        calls.append(events)
        poller.remove(here.fileno())  # unread: level-triggered readiness would call it for ever

    poller.add(here.fileno(), ready)
    there.send(b"x")
    settle(poller)
    settle(poller)
    assert len(calls) == 1


def test_a_handler_may_remove_others_that_are_ready_at_the_same_time() -> None:
    pairs = [socket.socketpair() for _ in range(4)]
    poller = Poller()
    calls: list[int] = []

    def ready(events: int) -> None:
        calls.append(events)
        for here, _ in pairs:
            poller.remove(here.fileno())
        poller.stop()

    for here, there in pairs:
        poller.add(here.fileno(), ready)
        there.send(b"x")
    poller.run()  # on this thread: all four are ready in the first poll
    assert len(calls) == 1
    poller.close()
    for here, there in pairs:
        here.close()
        there.close()


def test_a_handler_may_add_descriptors(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    here, there = pair
    done = threading.Event()

    def added(events: int) -> None:
        poller.remove(here.fileno())
        done.set()

    poller.call_soon(lambda: poller.add(here.fileno(), added))
    there.send(b"x")
    assert done.wait(PATIENCE)


def test_an_exception_of_a_handler_is_logged_and_ends_nothing(
    poller: Poller, pair: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    here, there = pair
    call, done = count_down(2)

    def ready(events: int) -> None:
        here.recv(1)
        call()
        raise ValueError("a bug in a handler")

    with caplog.at_level(logging.ERROR, "monarch.net"):
        poller.add(here.fileno(), ready)
        there.send(b"12")
        assert done.wait(PATIENCE)
        poller.call_soon(each(lambda: 1 // 0))
        poller.call_later(0, each(lambda: [][0]))
        settle(poller)
        settle(poller)
    logged = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert logged.count(ValueError) == 2
    assert ZeroDivisionError in logged
    assert IndexError in logged
    poller.remove(here.fileno())


# calls from other threads


def test_a_call_from_another_thread_wakes_the_loop(poller: Poller) -> None:
    settle(poller)  # the loop waits, with no timer
    ran: list[int | None] = []
    done = threading.Event()
    poller.call_soon(each(lambda: ran.append(threading.get_ident()), done.set))
    assert done.wait(PATIENCE)
    assert ran == [poller.thread_id]


def test_calls_run_in_the_order_of_each_thread() -> None:
    with running_poller() as poller:
        seen: dict[int, list[int]] = {number: [] for number in range(4)}
        call, done = count_down(4 * 500)

        def work(number: int) -> None:
            for i in range(500):
                poller.call_soon(each(functools.partial(seen[number].append, i), call))

        threads = [threading.Thread(target=work, args=(number,)) for number in seen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert done.wait(PATIENCE)
        assert all(calls == list(range(500)) for calls in seen.values())


def test_a_call_made_on_the_loop_runs_without_another_event(poller: Poller) -> None:
    done = threading.Event()
    poller.call_soon(lambda: poller.call_soon(lambda: poller.call_soon(done.set)))
    assert done.wait(PATIENCE)


def test_calls_made_before_the_loop_runs_are_kept() -> None:
    poller = Poller()
    ran: list[str] = []
    poller.call_soon(lambda: ran.append("soon"))
    poller.call_later(0, each(lambda: ran.append("later"), poller.stop))
    poller.run()
    poller.close()
    assert ran == ["soon", "later"]


def test_more_wakes_than_the_pipe_holds_are_harmless() -> None:
    poller = Poller()
    calls: list[None] = []
    for _ in range(70_000):  # a pipe holds 65,536 bytes
        poller.call_soon(lambda: calls.append(None))
    poller.call_soon(poller.stop)
    poller.run()
    poller.close()
    assert len(calls) == 70_000


# timers


@settings(max_examples=20)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=15))
def test_timers_run_in_the_order_of_their_times_and_equal_ones_as_they_were_made(
    delays: list[int],
) -> None:
    poller = Poller()
    ran: list[int] = []

    def schedule() -> None:
        for index, delay in enumerate(delays):
            # far apart, so that the time between two calls cannot matter, and all of them in the
            # past
            poller.call_later(-1000 - 100 * delay, functools.partial(ran.append, index))
        poller.call_later(-1, poller.stop)

    poller.call_soon(schedule)
    poller.run()
    poller.close()
    assert [delays[index] for index in ran] == sorted(delays, reverse=True)
    for delay in set(delays):
        assert [i for i in ran if delays[i] == delay] == [
            i for i, one in enumerate(delays) if one == delay
        ]


def test_a_timer_does_not_run_before_its_time(poller: Poller) -> None:
    done = threading.Event()
    far = poller.call_later(3600, done.set)
    settle(poller)
    assert not done.is_set()
    far.cancel()


def test_a_timer_from_another_thread_shortens_the_wait(poller: Poller) -> None:
    far = poller.call_later(3600, lambda: None)
    settle(poller)
    done = threading.Event()
    poller.call_later(0.01, done.set)
    assert done.wait(PATIENCE)
    far.cancel()


def test_a_timer_runs_once(poller: Poller) -> None:
    call, done = count_down(2)
    poller.call_later(0, call)
    settle(poller)
    settle(poller)
    assert not done.is_set()


def test_a_cancelled_timer_does_not_run(poller: Poller) -> None:
    ran: list[str] = []
    done = threading.Event()

    def schedule() -> None:
        timer = poller.call_later(0, lambda: ran.append("cancelled"))
        poller.call_later(0, each(lambda: ran.append("kept"), done.set))
        timer.cancel()
        timer.cancel()

    poller.call_soon(schedule)
    assert done.wait(PATIENCE)
    assert ran == ["kept"]


def test_a_timer_may_cancel_another_that_is_due() -> None:
    poller = Poller()
    ran: list[str] = []
    others: list[Timer] = []

    def first() -> None:
        ran.append("first")
        others[0].cancel()

    def schedule() -> None:
        poller.call_later(-2, first)
        others.append(poller.call_later(-1, lambda: ran.append("second")))
        poller.call_later(-1, poller.stop)

    poller.call_soon(schedule)
    poller.run()
    poller.close()
    assert ran == ["first"]


def test_a_timer_that_is_months_away_does_not_end_the_loop(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    poller = Poller()

    def schedule() -> None:
        poller.call_later(60 * 60 * 24 * 60, lambda: None)
        there.send(b"x")  # ends the wait for the timer

    poller.add(here.fileno(), lambda events: poller.stop())
    poller.call_soon(schedule)
    try:
        poller.run()
    finally:
        poller.close()


# the end


def test_stopping_ends_the_loop_from_any_thread_and_from_a_handler() -> None:
    with running_poller() as poller:
        settle(poller)
        assert poller.thread_id is not None
    other = Poller()
    other.call_soon(other.stop)
    other.run()
    assert other.thread_id is None
    other.close()


def test_a_loop_stopped_before_it_runs_returns_at_once() -> None:
    poller = Poller()
    poller.stop()
    poller.run()
    poller.close()


def descriptors() -> set[int]:
    return {int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}


def test_a_closed_loop_has_no_descriptors_and_ignores_late_calls() -> None:
    before = descriptors()
    poller = Poller()
    poller.close()
    poller.call_soon(lambda: None)
    poller.call_later(1, lambda: None)
    poller.remove(0)
    assert descriptors() == before


def test_a_late_call_to_a_closed_loop_writes_to_no_other_descriptor() -> None:
    poller = Poller()
    poller.close()
    # these get the numbers that the loop had
    sockets = [sock for _ in range(4) for sock in socket.socketpair()]
    try:
        poller.call_soon(lambda: None)
        poller.stop()
        assert select.select(sockets, [], [], 0)[0] == []
    finally:
        for sock in sockets:
            sock.close()


def test_descriptors_of_the_loop_are_not_inherited_by_programs() -> None:
    before = descriptors()
    poller = Poller()
    own = descriptors() - before
    assert len(own) == 3
    assert not any(os.get_inheritable(fd) for fd in own)
    poller.close()


def test_threads_give_way_to_a_busy_poller_and_to_no_other(
    poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    began, over = threading.Event(), threading.Event()
    clock = SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic)
    monkeypatch.setattr("monarch._core.net.poller.time", clock)
    poller.call_soon(each(poller.give_way, began.set, lambda: over.wait(PATIENCE)))
    assert began.wait(PATIENCE)
    assert pauses == [], "its own thread waits for nobody"
    poller.give_way()
    assert len(pauses) == 1
    over.set()
    wait_until(lambda: poller._going_to_wait, what="the poller to have nothing to do")
    poller.give_way()
    assert len(pauses) == 1
