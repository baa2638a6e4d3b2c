from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from helpers.leaks import nothing_left
from monarch._core.net.waiter import Waiter, put_back, take_waiter

PATIENCE = 20.0


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    put_back(take_waiter())  # the next that waits has it
    with nothing_left():
        yield


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def test_a_wait_ends_when_the_descriptor_can_be_read(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    there.send(b"x")
    waiter = Waiter()
    assert waiter.wait(here.fileno(), PATIENCE)
    assert waiter.wait(here.fileno(), None)  # level-triggered


def test_a_wait_ends_when_the_peer_is_gone(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    there.close()
    assert Waiter().wait(here.fileno(), PATIENCE)


@pytest.mark.parametrize("timeout", [0, 0.001])
def test_a_wait_ends_when_its_time_is_over(
    pair: tuple[socket.socket, socket.socket], timeout: float
) -> None:
    assert not Waiter().wait(pair[0].fileno(), timeout)


def test_a_wait_may_be_as_long_as_a_future_may_be_waited_for(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    there.send(b"x")
    assert Waiter().wait(here.fileno(), 60 * 60 * 24 * 365)


def test_another_thread_ends_a_wait_before_it_begins_or_during_it(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    waiter = Waiter()
    for _ in range(20):
        waker = threading.Thread(target=waiter.wake)
        waker.start()
        assert not waiter.wait(pair[0].fileno(), PATIENCE)
        waker.join(PATIENCE)


def test_several_wakes_end_one_wait(pair: tuple[socket.socket, socket.socket]) -> None:
    waiter = Waiter()
    for _ in range(3):
        waker = threading.Thread(target=waiter.wake)
        waker.start()
        waker.join(PATIENCE)
    assert not waiter.wait(pair[0].fileno(), PATIENCE)
    assert not waiter.wait(pair[0].fileno(), 0)


def test_a_thread_that_wakes_itself_does_nothing(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    waiter = Waiter()
    waiter.wake()
    there.send(b"x")
    assert waiter.wait(here.fileno(), PATIENCE)


def test_a_waiter_watches_only_the_descriptor_of_the_current_wait(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    here, there = pair
    waiter = Waiter()
    assert not waiter.wait(here.fileno(), 0)
    there.send(b"x")
    assert not waiter.wait(there.fileno(), 0)
    assert waiter.wait(here.fileno(), 0)


def test_a_descriptor_that_was_closed_since_the_last_wait_does_no_harm() -> None:
    waiter = Waiter()
    for _ in range(3):
        here, there = socket.socketpair()
        assert not waiter.wait(here.fileno(), 0)
        there.send(b"x")
        assert waiter.wait(here.fileno(), PATIENCE)
        here.close()
        there.close()


def test_a_waiter_that_was_put_back_is_used_again_by_the_next_thread() -> None:
    found: list[Waiter] = []

    def use() -> None:
        waiter = take_waiter()
        found.append(waiter)
        assert waiter.thread_id == threading.get_ident()
        put_back(waiter)

    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        thread = threading.Thread(target=use)
        thread.start()
        thread.join(PATIENCE)
    assert len(set(found)) == 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_two_that_wait_at_a_time_have_a_waiter_each() -> None:
    one, other = take_waiter(), take_waiter()
    assert one is not other
    put_back(one)
    del other
    assert take_waiter() is one
    put_back(one)


def test_a_forked_child_wakes_no_thread_of_its_parent() -> None:
    waiter = take_waiter()
    put_back(waiter)
    pid = os.fork()
    if pid == 0:
        os._exit(take_waiter() is waiter)
    assert os.waitpid(pid, 0)[1] == 0


def test_one_whose_making_was_interrupted_goes_without_a_word() -> None:
    Waiter.__new__(Waiter).__del__()
