from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from helpers.leaks import nothing_left
from helpers.pollers import running_poller, settle
from helpers.waiting import PATIENCE
from monarch._core.net.connection import Connection
from monarch._core.net.group import Group
from monarch._core.net.poller import Poller
from monarch._core.wire.frame import CALL, Frame, encode


class Ends:
    """Three connections in one group, and the other end of each."""

    def __init__(self, poller: Poller) -> None:
        self.poller = poller
        self.group = Group(poller)
        self.got: list[tuple[int, int]] = []  # request, thread that read it
        self.reasons: list[str] = []
        self._changed = threading.Condition()
        pairs = [socket.socketpair() for _ in range(3)]
        for here, _ in pairs:
            here.setblocking(False)
        self.there = [there for _, there in pairs]
        self.here = [
            Connection(
                self.group,
                here,
                self._arrived,
                self._closed,
                limit=1 << 20,
                send_limit=1 << 20,
                send_timeout=PATIENCE,
            )
            for here, _ in pairs
        ]

    def _arrived(self, connection: Connection, frame: Frame) -> None:
        with self._changed:
            self.got.append((frame.request, threading.get_ident()))
            self._changed.notify_all()

    def _closed(self, connection: Connection, reason: str) -> None:
        with self._changed:
            self.reasons.append(reason)
            self._changed.notify_all()

    def wait(self, condition: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE), (self.got, self.reasons)

    def settle(self) -> None:
        settle(self.poller)

    def close(self) -> None:
        for connection in self.here:
            connection.close()
        for there in self.there:
            there.close()
        self.group.close()
        self.group.close()  # which may happen twice


@pytest.fixture
def ends() -> Iterator[Ends]:
    with nothing_left(), running_poller() as poller:
        ends = Ends(poller)
        yield ends
        ends.close()


def message(request: int, payload: bytes = b"") -> bytes:
    return encode(Frame(CALL, 0, 0, 1, 0, request, b"", payload))[0]


def test_the_poller_reads_what_is_not_borrowed(ends: Ends) -> None:
    for number, there in enumerate(ends.there):
        there.sendall(message(number))
    ends.wait(lambda: len(ends.got) == 3)
    assert sorted(ends.got) == [(number, ends.poller.thread_id) for number in range(3)]


def test_a_borrower_reads_all_connections_in_one_go(ends: Ends) -> None:
    assert ends.group.borrow()
    for number, there in enumerate(ends.there):
        there.sendall(message(number))
    ends.settle()
    assert not ends.got
    ends.group.receive()
    assert sorted(ends.got) == [(number, threading.get_ident()) for number in range(3)]
    ends.group.give_back()
    ends.there[0].sendall(message(3))
    ends.wait(lambda: (3, ends.poller.thread_id) in ends.got)


def test_what_a_borrower_leaves_unread_is_read_by_the_poller(ends: Ends) -> None:
    assert ends.group.borrow()
    for number, there in enumerate(ends.there):
        there.sendall(message(number))
    ends.settle()
    ends.group.give_back()
    ends.wait(lambda: len(ends.got) == 3)


def test_a_connection_that_is_borrowed_alone_is_not_read_with_the_others(ends: Ends) -> None:
    assert ends.here[0].borrow()
    ends.there[0].sendall(message(0))
    ends.there[1].sendall(message(1))
    ends.wait(lambda: ends.got)
    assert ends.group.borrow()
    ends.group.receive()
    assert [request for request, _ in ends.got] == [1]
    ends.group.give_back()
    ends.here[0].receive()
    ends.here[0].give_back()
    assert (0, threading.get_ident()) in ends.got


def test_what_is_queued_is_written_while_the_group_is_lent(ends: Ends) -> None:
    assert ends.group.borrow()
    frame = Frame(CALL, 0, 0, 1, 0, 7, b"", os.urandom(1 << 20))
    assert ends.here[2].send(frame._replace(payload=frame.payload[:900_000]))
    left = len(message(7, b"")) + 900_000
    ends.there[2].settimeout(PATIENCE)
    while left:
        left -= len(ends.there[2].recv(left))
    ends.group.give_back()
    ends.there[2].sendall(message(8))
    ends.wait(lambda: (8, ends.poller.thread_id) in ends.got)


def test_the_end_of_one_connection_is_told_and_the_others_go_on(ends: Ends) -> None:
    ends.there[0].close()
    ends.wait(lambda: ends.reasons)
    ends.there[1].sendall(message(1))
    ends.wait(lambda: ends.got)
    assert len(ends.reasons) == 1


def test_the_poller_sees_no_group_that_is_lent(ends: Ends) -> None:
    assert ends.group.borrow()
    ends.there[0].sendall(message(0))
    assert select.select([ends.group.fd], [], [], PATIENCE)[0]  # whoever has it can wait for it
    ends.settle()
    assert not ends.got
    ends.group.receive()
    ends.group.give_back()


def test_a_group_that_is_closed_cannot_be_borrowed(ends: Ends) -> None:
    for connection in ends.here:
        connection.close()
    ends.group.close()
    assert not ends.group.borrow()
