from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from helpers.leaks import nothing_left
from monarch._core.net.waiter import Waiter, thread_waiter

PATIENCE = 20.0


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    thread_waiter()  # that of this thread lives as long as it
    with nothing_left():
        yield


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    here, there = socket.socketpair()
    with here, there:
        yield here, there


def test_a_wait_ends_when_the_descriptor_can_be_read(pair: tuple[socket.socket, socket.socket]) -> None:
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
def test_a_wait_ends_when_its_time_is_over(pair: tuple[socket.socket, socket.socket], timeout: float) -> None:
    assert not Waiter().wait(pair[0].fileno(), timeout)


def test_a_wait_may_be_as_long_as_a_future_may_be_waited_for(pair: tuple[socket.socket, socket.socket]) -> None:
    here, there = pair
    there.send(b"x")
    assert thread_waiter().wait(here.fileno(), 60 * 60 * 24 * 365)


def test_another_thread_ends_a_wait_before_it_begins_or_during_it(pair: tuple[socket.socket, socket.socket]) -> None:
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


def test_a_waiter_watches_only_the_descriptor_of_the_current_wait(pair: tuple[socket.socket, socket.socket]) -> None:
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


def test_each_thread_has_its_waiter_and_its_descriptor_goes_with_it() -> None:
    found: list[Waiter] = []
    before = len(os.listdir("/proc/self/fd"))
    thread = threading.Thread(target=lambda: found.append(thread_waiter()))
    thread.start()
    thread.join(PATIENCE)
    assert found[0] is not thread_waiter()
    assert thread_waiter() is thread_waiter()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    found.clear()
    assert len(os.listdir("/proc/self/fd")) == before
