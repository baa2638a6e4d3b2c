"""The way to a process that starts again: what is said of the incarnation before must not befall
the next one.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.waiting import wait_until
from monarch._core.hub.local_peer import LocalPeer
from monarch._core.hub.remote import RemotePeer
from monarch._core.net import unix
from monarch._core.net.asked import Asked
from monarch._core.supervision.failure import KILLED, STOPPED, Failure
from monarch._core.wire.address import SYSTEM, ProcAddress, random_name
from monarch._core.wire.frame import CALL, HELLO, PROTOCOL_VERSION, REPLY, URGENT, Frame
from monarch.config import configured
from monarch.errors import BackpressureError

CALLED = Frame(CALL, 0, 0, 7, 0, 1, b"step", b"")


class Connection:
    """Keeps what was sent, until the other side hangs up."""

    parting = ""

    def __init__(self, sock: socket.socket, on_close: Any, requests: dict[int, Any]) -> None:
        self.sock = sock
        self.on_close = on_close
        self.asked = Asked(requests)
        self.writable = True
        self.sent: list[Frame] = []
        self.before_a_send: Any = lambda: None
        self.after_a_send: Any = lambda: None

    def send(self, frame: Frame, segment: Any = None) -> bool:
        self.before_a_send()
        if not self.writable:
            return False
        self.sent.append(frame)
        self.asked.note(frame.request)
        self.after_a_send()
        return True

    def close(self) -> None:
        self.writable = False
        self.sock.close()

    def break_(self) -> None:
        """What the thread that reads it does at its end."""
        self.close()
        self.on_close(self, "it closed the connection")


class Gateway:
    """Takes what is for other hosts."""

    def __init__(self) -> None:
        self.sent: list[Frame] = []

    def send(self, frame: Frame) -> None:
        self.sent.append(frame)


class MessageHub:
    """What a peer needs of its process; questions to the agent are kept, for the test to answer."""

    def __init__(self) -> None:
        self.address = ProcAddress(random_name(), "client.0")
        self.others = Gateway()
        self.requests: dict[int, Any] = {1: SimpleNamespace()}
        self.connections: list[Connection] = []
        self.questions: list[Any] = []
        self.told: list[Any] = []
        self.adopted: Any = lambda connection: None
        self.soon: list[Any] = []
        self.poller = SimpleNamespace(
            thread_id=None,
            call_soon=self.soon.append,
            call_later=lambda seconds, function: self.soon.append(function),
        )

    def run(self) -> None:
        """What the poller's thread has to do."""
        while self.soon:
            self.soon.pop(0)()

    def connect(self, address: ProcAddress, on_close: Any) -> Connection:
        self.connections.append(Connection(unix.connect(address), on_close, self.requests))
        self.connections[-1].send(Frame(HELLO, PROTOCOL_VERSION, 0, 0, 0, 0, b"", b""))
        self.adopted(self.connections[-1])
        return self.connections[-1]

    def ask_agent(self, address: ProcAddress, connected: float, answer: Any) -> None:
        self.questions.append(answer)

    def process_ended(
        self, address: ProcAddress, failure: Failure, witness: Any, ended: Any
    ) -> None:
        self.told.append(self.open(ended))

    def tell(self, address: ProcAddress, failure: Failure, ended: Any) -> None:
        self.told.append(self.open(ended))

    def open(self, ended: Any) -> list[tuple[int, Any]]:
        """Of these requests, those that wait for an answer."""
        return [(number, self.requests[number]) for number in ended if number in self.requests]


@pytest.fixture
def hub() -> Iterator[MessageHub]:
    hub = MessageHub()
    yield hub
    for connection in hub.connections:
        connection.close()


@pytest.fixture
def address() -> Iterator[ProcAddress]:
    """A process that serves, whichever incarnation of it."""
    address = ProcAddress(random_name(), "worker.0")
    with unix.listen(address):
        yield address
    unix.release_all(address.host)


def same(one: object, other: object) -> bool:
    return one is other


def called(request: int) -> Frame:
    return CALLED._replace(request=request)


def killed(known: float = 0.0) -> Failure:
    return Failure(KILLED, "the process was ended by SIGKILL", pid=100, restarts=True, known=known)


def test_a_connection_that_breaks_late_does_not_take_the_next_one_along(
    hub: MessageHub, address: ProcAddress
) -> None:
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    peer.send(CALLED)
    peer.end(killed())
    assert peer.send(CALLED) is None
    first, second = hub.connections
    first.break_()  # the thread that read it had been waiting for its turn
    assert same(peer.connection, second)
    assert hub.questions == []
    second.break_()
    assert peer.connection is None
    assert len(hub.questions) == 1


def test_the_end_of_an_incarnation_is_told_once_despite_later_news(
    hub: MessageHub, address: ProcAddress
) -> None:
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    peer.send(CALLED)
    first_end = killed(time.monotonic())
    assert hub.open(peer.end(first_end)) == list(hub.requests.items())
    assert not peer.end(Failure(STOPPED, "it starts again", restarts=True))
    peer.send(CALLED)  # to the next incarnation
    assert not peer.end(first_end)
    assert same(peer.connection, hub.connections[1])
    assert hub.open(peer.end(killed(time.monotonic()))) == list(hub.requests.items())


def test_a_connection_to_the_next_incarnation_outlives_the_one_before(
    hub: MessageHub, address: ProcAddress
) -> None:
    first_end = killed(time.monotonic())
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    peer.send(CALLED)
    assert not peer.end(first_end)
    assert same(peer.connection, hub.connections[0])


@pytest.mark.parametrize("answer", [killed(), None], ids=["ended", "listens"])
def test_an_answer_about_one_incarnation_does_not_befall_the_next_however_late(
    hub: MessageHub, address: ProcAddress, answer: Failure | None
) -> None:
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    peer.send(CALLED)
    hub.connections[0].break_()

    peer.end(killed(time.monotonic()))
    peer.send(CALLED)
    hub.questions[0](answer)
    assert hub.told == []
    assert same(peer.connection, hub.connections[1])


def test_where_another_user_listens_the_agent_is_asked_at_once(
    hub: MessageHub, address: ProcAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unix.path_of(address)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(unix, "path_of", lambda address: path)  # as if it could be entered
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    assert peer.send(CALLED) is None
    hub.run()
    assert len(hub.questions) == 1
    ended = Failure(KILLED, "the process was ended by SIGKILL", pid=100)
    hub.questions[0](ended)
    assert same(peer.failure, ended)


def test_frames_unsent_to_an_ended_process_wait_for_its_next_incarnation(
    hub: MessageHub, address: ProcAddress
) -> None:
    hub.requests = {number: SimpleNamespace() for number in (1, 2, 3, 4)}
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    peer.send(called(1))
    first = hub.connections[0]
    first.writable = False  # the other side has closed it, and nobody has read that yet
    assert peer.send(called(2)) is None
    first.break_()
    assert peer.send(called(3)) is None
    assert peer.send(called(4)._replace(flags=URGENT)) is None  # to stop it, say
    hub.questions[0](killed(time.monotonic()))
    assert [number for number, _ in hub.told[0]] == [1, 4]
    hub.run()
    assert [frame.request for frame in hub.connections[1].sent if frame.kind == CALL] == [2, 3]


def calls_over(connection: Connection) -> list[int]:
    return [frame.request for frame in connection.sent if frame.kind == CALL]


def ended_by(told: Any) -> list[int]:
    return [number for number, _ in told]


def test_a_call_about_to_be_sent_as_the_end_is_told_is_the_next_incarnations(
    hub: MessageHub, address: ProcAddress
) -> None:
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    peer.send(called(1))
    # a thread has noted its call, and comes to send it when all is over
    hub.requests[2] = SimpleNamespace()
    assert ended_by(hub.open(peer.end(killed(time.monotonic())))) == [1]
    assert peer.send(called(2)) is None
    assert [calls_over(connection) for connection in hub.connections] == [[1], [2]]


@pytest.mark.parametrize("sent", [False, True], ids=["before it is written", "when it was written"])
def test_another_threads_call_fails_only_if_the_ended_process_got_it(
    hub: MessageHub, address: ProcAddress, sent: bool
) -> None:
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    peer.send(called(1))
    hub.requests[2] = SimpleNamespace()
    first = hub.connections[0]
    told: list[int] = []

    def end() -> None:  # on the thread that reads
        first.before_a_send = first.after_a_send = lambda: None
        told.extend(ended_by(hub.open(peer.end(killed(time.monotonic())))))

    if sent:
        first.after_a_send = end
    else:
        first.before_a_send = end
    assert peer.send(called(2)) is None
    assert told == ([1, 2] if sent else [1])
    assert [calls_over(connection) for connection in hub.connections] == (
        [[1, 2]] if sent else [[1], [2]]
    )


def test_the_late_end_of_one_way_to_a_process_fails_no_call_over_the_other(
    hub: MessageHub, address: ProcAddress
) -> None:
    hub.requests = {number: SimpleNamespace() for number in (1, 2, 3)}
    urgent, plain = LocalPeer(hub, address), LocalPeer(hub, address)  # type: ignore[arg-type]
    urgent.send(called(1))
    plain.send(called(2))
    first = killed(time.monotonic())
    assert ended_by(hub.open(plain.end(first))) == [2]
    plain.send(called(3))  # to the next incarnation
    assert not plain.end(first)
    assert same(plain.connection, hub.connections[-1])
    assert ended_by(hub.open(urgent.end(first))) == [1]


def test_what_the_next_incarnation_can_not_take_as_it_has_ended_too_waits_on(
    hub: MessageHub, address: ProcAddress
) -> None:
    hub.requests = {number: SimpleNamespace() for number in (1, 2)}
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    peer.send(called(1))
    hub.connections[0].writable = False
    peer.send(called(2))
    hub.connections[0].break_()
    hub.adopted = lambda connection: setattr(connection, "writable", False)
    hub.questions[0](killed(time.monotonic()))
    hub.run()  # connects to the next one, which has closed that connection already
    hub.adopted = lambda connection: None
    hub.connections[1].break_()
    hub.questions[1](killed(time.monotonic()))
    hub.run()
    assert calls_over(hub.connections[2]) == [2]
    assert ended_by(hub.told[0]) == [1]
    assert ended_by(hub.told[1]) == []


def test_what_was_not_sent_to_a_process_that_does_not_start_again_is_told_its_end(
    hub: MessageHub, address: ProcAddress
) -> None:
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    peer.send(called(2))
    hub.connections[0].writable = False
    peer.send(CALLED)
    hub.connections[0].break_()
    gone = killed()._replace(restarts=False)
    hub.questions[0](gone)
    assert hub.told == [list(hub.requests.items())]
    assert peer.send(CALLED) is gone


def test_the_end_of_a_process_of_another_host_befalls_no_call_that_came_later(
    hub: MessageHub,
) -> None:
    peer = RemotePeer(hub, ProcAddress("tcp://10.0.0.1:26600", "worker.0"), hub.others.send)  # type: ignore[arg-type]
    again = Failure(STOPPED, "it starts again", restarts=True)
    assert peer.send(CALLED) is None
    assert hub.open(peer.end(killed())) == list(hub.requests.items())
    assert peer.send(CALLED) is None  # which waits there for the next incarnation
    assert not peer.end(again)
    assert not peer.end(killed())
    assert hub.open(peer.end(killed()._replace(incarnation=1))) == list(hub.requests.items())
    assert peer.send(CALLED) is None
    given_up = killed()._replace(incarnation=1, restarts=False)
    assert hub.open(peer.end(given_up)) == list(hub.requests.items())
    assert peer.send(CALLED) is given_up


def test_what_the_other_side_says_before_it_ends_a_connection_is_the_reason(
    hub: MessageHub, address: ProcAddress
) -> None:
    peer = LocalPeer(hub, address)  # type: ignore[arg-type]
    peer.send(called(1))
    hub.connections[0].parting = "no descriptor is left"
    hub.connections[0].break_()
    assert not hub.questions, "it lives, and has said why"
    assert peer.failure is not None
    assert peer.failure.cause == "link"
    assert peer.failure.reason.endswith("although it runs: no descriptor is left")


LIMIT = 1 << 20


def half_full(request: int, flags: int = 0) -> Frame:
    return called(request)._replace(payload=bytes(LIMIT // 2), flags=flags)


class Sender(threading.Thread):
    """Sends too much for one that is not there; waits, then, until it may go on."""

    def __init__(self, peer: LocalPeer) -> None:
        super().__init__()
        self.peer = peer
        self.outcome: Any = "it waits"
        self.peer.send(half_full(1))
        self.start()
        wait_until(lambda: len(peer._backlog) == 2, what="the frame that is too much")

    def run(self) -> None:
        try:
            self.outcome = self.peer.send(half_full(2))
        except BackpressureError as error:
            self.outcome = error

    def end(self) -> Any:
        self.join(20)
        return self.outcome


@pytest.fixture
def nobody(hub: MessageHub) -> Iterator[ProcAddress]:
    """A process that has yet to start."""
    hub.requests = {number: SimpleNamespace() for number in (1, 2, 3)}
    address = ProcAddress(random_name(), "worker.0")
    with configured(send_buffer_limit=LIMIT):
        yield address
    unix.release_all(address.host)


def test_who_sends_too_much_to_a_process_that_starts_goes_on_when_it_is_there(
    hub: MessageHub, nobody: ProcAddress
) -> None:
    sender = Sender(LocalPeer(hub, nobody))  # type: ignore[arg-type]
    hub.run()
    assert sender.outcome == "it waits"
    with unix.listen(nobody):
        hub.questions[0](None)
        hub.run()
        assert sender.end() is None
        assert calls_over(hub.connections[0]) == [1, 2]


@pytest.mark.parametrize("restarts", [False, True])
def test_who_sends_too_much_to_a_process_that_starts_goes_on_when_it_has_ended(
    hub: MessageHub, nobody: ProcAddress, restarts: bool
) -> None:
    sender = Sender(LocalPeer(hub, nobody))  # type: ignore[arg-type]
    hub.run()
    assert sender.outcome == "it waits"
    hub.questions[0](killed()._replace(restarts=restarts))
    assert sender.end() is None
    assert [ended_by(told) for told in hub.told] == [[1, 2]]


def test_who_sends_too_much_to_a_process_that_never_starts_is_told_in_time(
    hub: MessageHub, nobody: ProcAddress
) -> None:
    with configured(message_delivery_timeout="50ms"):
        sender = Sender(LocalPeer(hub, nobody))  # type: ignore[arg-type]
        error = sender.end()
    assert isinstance(error, BackpressureError)
    assert re.search(
        r"worker\.0.* could not be reached for 0\.05s; \d+ bytes wait.*send_buffer_limit",
        str(error),
    )


def test_what_never_waits_is_kept_for_a_process_that_starts_however_much_there_is(
    hub: MessageHub, nobody: ProcAddress
) -> None:
    peer = LocalPeer(hub, nobody)  # type: ignore[arg-type]
    answers = [half_full(number)._replace(kind=REPLY) for number in (1, 2, 3)]
    urgent = [half_full(number, URGENT) for number in (1, 2, 3)]
    assert [peer.send(frame) for frame in answers + urgent] == [None] * 6
    assert len(peer._backlog) == 6


def test_what_makes_a_process_what_it_is_to_start_waits_for_no_room_there(
    hub: MessageHub, nobody: ProcAddress
) -> None:
    peer = LocalPeer(hub, nobody)  # type: ignore[arg-type]
    records = [half_full(number)._replace(target=SYSTEM) for number in (1, 2, 3)]
    assert [peer.send(record) for record in records] == [None] * 3


def test_the_thread_that_would_hear_that_a_process_has_started_waits_for_no_room(
    hub: MessageHub, nobody: ProcAddress
) -> None:
    peer = LocalPeer(hub, nobody)  # type: ignore[arg-type]
    hub.poller.thread_id = threading.get_ident()
    assert [peer.send(half_full(number)) for number in (1, 2, 3)] == [None] * 3


def test_one_message_alone_is_kept_for_a_process_that_starts_however_large(
    hub: MessageHub, nobody: ProcAddress
) -> None:
    peer = LocalPeer(hub, nobody)  # type: ignore[arg-type]
    assert peer.send(CALLED._replace(payload=bytes(2 * LIMIT))) is None
    assert len(peer._backlog) == 1
