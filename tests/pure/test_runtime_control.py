from __future__ import annotations

import gc
import os
import resource
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.leaks import nothing_left
from monarch._core.processes.control import (
    _PIECE,
    ControlQueue,
    ControlReader,
    control_pair,
    send_message,
)

PATIENCE = 20.0
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    gc.collect()
    with nothing_left():
        yield


@pytest.fixture
def pair() -> Iterator[Pair]:
    here, there = control_pair()
    there.settimeout(PATIENCE)
    with here, there:
        yield here, there


def receive_message(sock: socket.socket) -> tuple[Any, list[int]]:
    return ControlReader(sock).receive()


@settings(max_examples=40)
@given(
    st.lists(
        st.integers(0, 3 * _PIECE) | st.integers(_PIECE - 20, _PIECE + 20), min_size=1, max_size=8
    )
)
def test_messages_of_any_size_keep_their_boundaries_and_their_order(sizes: list[int]) -> None:
    here, there = control_pair()
    there.settimeout(PATIENCE)
    with here, there:

        def send() -> None:
            for number, size in enumerate(sizes):
                send_message(here, (number, bytes(size)))

        sender = threading.Thread(target=send)  # more than the socket holds
        sender.start()
        reader = ControlReader(there)
        for number, size in enumerate(sizes):
            assert reader.receive() == ((number, bytes(size)), [])
        sender.join()


def test_a_message_larger_than_the_sockets_buffer_is_read_as_it_comes(pair: Pair) -> None:
    here, there = pair
    there.setblocking(False)
    message = os.urandom(4 * here.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
    queue, reader = ControlQueue(here, Watch()), ControlReader(there)
    queue.send(message)
    for _ in range(100):
        try:
            assert reader.receive() == (message, [])
        except BlockingIOError:
            queue.flush()
        else:
            return
    raise AssertionError("it never came")


@pytest.mark.parametrize("size", [10, 4 * _PIECE], ids=["small", "large"])
def test_a_message_comes_also_where_neither_side_has_a_descriptor_left(
    pair: Pair, size: int
) -> None:
    here, there = pair
    queue, reader = ControlQueue(here, Watch()), ControlReader(there)
    read, write = os.pipe()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))  # those that are open stay so
    try:
        queue.send(b"x" * size)
        got = reader.receive()
        send_message(here, "with a descriptor", [read])
        with_one = reader.receive()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.close(read)
        os.close(write)
    assert got == (b"x" * size, [])
    assert with_one == ("with a descriptor", [])


@pytest.mark.parametrize("size", [10, 3 * _PIECE], ids=["small", "large"])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_descriptors_travel_with_a_message_in_their_order(
    pair: Pair, size: int, count: int
) -> None:
    here, there = pair
    pipes = [os.pipe() for _ in range(count)]
    send_message(here, b"x" * size, [read for read, _ in pipes])
    send_message(here, "next")
    got, fds = receive_message(there)
    assert got == b"x" * size
    assert receive_message(there) == ("next", [])
    for number, (read, write) in enumerate(pipes):
        os.close(read)
        os.write(write, b"%d" % number)
        os.close(write)
    assert [os.read(fd, 10) for fd in fds] == [b"%d" % number for number in range(count)]
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize("size", [10, 3 * _PIECE], ids=["small", "large"])
def test_what_was_sent_before_the_end_arrives_and_then_the_end(pair: Pair, size: int) -> None:
    here, there = pair
    send_message(here, b"x" * size)
    here.close()
    assert receive_message(there)[0] == b"x" * size
    for _ in range(2):
        with pytest.raises(EOFError):
            receive_message(there)


@pytest.mark.parametrize("size", [10, 3 * _PIECE], ids=["small", "large"])
def test_a_receiver_that_is_gone_is_an_error_and_leaves_no_descriptor(
    pair: Pair, size: int
) -> None:
    here, there = pair
    there.close()
    with pytest.raises(ConnectionError):
        send_message(here, b"x" * size)


def test_what_cannot_be_pickled_is_not_sent_in_part(pair: Pair) -> None:
    here, there = pair
    with pytest.raises(TypeError):
        send_message(here, threading.Lock())
    send_message(here, "next")
    assert receive_message(there) == ("next", [])


# the queue


class Watch:
    """What a queue asked to wait for."""

    def __init__(self) -> None:
        self.events: list[int] = []

    def __call__(self, events: int) -> None:
        self.events.append(events)

    @property
    def for_room(self) -> bool:
        return bool(self.events[-1] & select.EPOLLOUT)


def test_a_queue_sends_at_once_while_there_is_room(pair: Pair) -> None:
    here, there = pair
    watch = Watch()
    queue = ControlQueue(here, watch)
    for i in range(3):
        queue.send(i)
        assert not watch.for_room
        assert receive_message(there) == (i, [])
    assert all(events & select.EPOLLIN for events in watch.events)


@pytest.mark.parametrize("size", [100, 3 * _PIECE], ids=["small", "large"])
def test_a_queue_never_blocks_and_loses_nothing_without_a_reader(pair: Pair, size: int) -> None:
    here, there = pair
    watch = Watch()
    queue = ControlQueue(here, watch)
    count = 0
    while not (count and watch.for_room):
        queue.send((count, b"x" * size))
        count += 1
        assert count < 100_000, "the socket never fills"
    for _ in range(5):
        queue.send((count, b"x" * size))
        count += 1
    assert watch.for_room
    reader = ControlReader(there)
    there.setblocking(False)
    for number in range(count):
        if watch.for_room and number % 3 == 0:
            queue.flush()
        while True:
            try:
                got = reader.receive()
                break
            except BlockingIOError:  # part of it has not been sent
                queue.flush()
        assert got == ((number, b"x" * size), [])
    queue.flush()
    assert not watch.for_room
    assert watch.events[-1] & select.EPOLLIN


def test_a_queue_asks_for_room_only_as_long_as_it_needs_some(pair: Pair) -> None:
    here, there = pair
    watch = Watch()
    queue = ControlQueue(here, watch)
    sent = 0
    while not (sent and watch.for_room):
        queue.send(b"x" * 5000)
        sent += 1
    queue.flush()  # there is no room yet
    assert watch.for_room
    for _ in range(sent - 1):
        receive_message(there)
    queue.flush()
    assert not watch.for_room


@pytest.mark.parametrize("queued", [False, True])
def test_a_queue_whose_receiver_is_gone_drops_what_it_has_without_an_error(
    pair: Pair, queued: bool
) -> None:
    here, there = pair
    watch = Watch()
    queue = ControlQueue(here, watch)
    while queued and not (watch.events and watch.for_room):
        queue.send(b"x" * 5000)
    there.close()
    message: Any = "nobody reads this"
    queue.send(message)
    queue.flush()
    assert not queue._queue
