"""The way to a process that starts again: what is said of the incarnation before must not befall the next one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from monarch._core.net import unix
from monarch._core.runtime.peer import Peer
from monarch._core.supervision.failure import KILLED, STOPPED, Failure
from monarch._core.wire.address import ProcAddress, random_name
from monarch._core.wire.frame import CALL, HELLO, PROTOCOL_VERSION, Frame

CALLED = Frame(CALL, 0, 0, 7, 0, 1, b"step", b"")


class Connection:
    """Keeps what was sent."""

    def __init__(self, sock: socket.socket, on_close: Any) -> None:
        self.sock = sock
        self.on_close = on_close
        self.closed = False
        self.sent: list[Frame] = []

    def send(self, frame: Frame, segment: Any = None) -> bool:
        if not self.closed:
            self.sent.append(frame)
        return not self.closed

    def close(self) -> None:
        self.closed = True
        self.sock.close()


class Node:
    """What a peer needs of its process; questions to the agent are kept, and stay without an answer."""

    def __init__(self) -> None:
        self.requests: dict[int, Any] = {1: SimpleNamespace()}
        self.hello = Frame(HELLO, PROTOCOL_VERSION, 0, 0, 0, 0, b"", b"")
        self.connections: list[Connection] = []
        self.questions: list[float] = []
        self.poller = SimpleNamespace(call_later=lambda seconds, function: function())

    def local(self, address: ProcAddress) -> ProcAddress:
        return address

    def adopt(self, sock: socket.socket, address: ProcAddress, on_close: Any) -> Connection:
        self.connections.append(Connection(sock, on_close))
        return self.connections[-1]

    def ask_agent(self, address: ProcAddress, connected: float, answer: Any) -> None:
        self.questions.append(connected)


@pytest.fixture
def node() -> Iterator[Node]:
    node = Node()
    yield node
    for connection in node.connections:
        connection.close()


@pytest.fixture
def address() -> Iterator[ProcAddress]:
    """A process that serves, whichever incarnation of it."""
    address = ProcAddress(random_name(), "worker.0")
    with unix.listen(address):
        yield address


def same(one: object, other: object) -> bool:
    return one is other


def killed(pid: int) -> Failure:
    return Failure(KILLED, "the process was ended by SIGKILL", pid=pid, restarts=True)


def test_a_connection_that_breaks_late_does_not_take_the_next_one_along(node: Node, address: ProcAddress) -> None:
    peer = Peer(node, address)  # type: ignore[arg-type]
    peer.send(CALLED)
    peer.end(killed(100), certain=False)
    assert peer.send(CALLED) is None
    first, second = node.connections
    first.on_close(first, "it closed the connection")  # the thread that read it had been waiting for its turn
    assert same(peer.connection, second)
    assert node.questions == []
    second.on_close(second, "it closed the connection")
    assert peer.connection is None
    assert len(node.questions) == 1


def test_the_end_of_an_incarnation_is_told_once_whatever_was_said_since(node: Node, address: ProcAddress) -> None:
    peer = Peer(node, address)  # type: ignore[arg-type]
    peer.send(CALLED)
    assert peer.end(killed(100), certain=False) == list(node.requests.items())
    assert peer.end(Failure(STOPPED, "it starts again", restarts=True), certain=False) is None
    peer.send(CALLED)  # to the next incarnation
    assert peer.end(killed(100), certain=False) is None
    assert same(peer.connection, node.connections[1])
    assert peer.end(killed(101), certain=False) == list(node.requests.items())
