"""The hub of a process, without a thread that runs its poller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from monarch._core.hub.node import Node
from monarch._core.net import unix
from monarch._core.net.poller import Timer
from monarch._core.supervision.failure import EXCEPTION, KILLED, STOPPED, Failure
from monarch._core.wire.address import ProcAddress, random_name
from monarch._core.wire.frame import CALL, DEAD, HOLD, Frame

ACTOR = 7


class Origin:
    """A caller; keeps what it is answered."""

    peer = ProcAddress(random_name(), "caller.0")

    def __init__(self) -> None:
        self.answers: list[Frame] = []

    def send(self, frame: Frame) -> bool:
        self.answers.append(frame)
        return True


class Receiver:
    def __init__(self) -> None:
        self.received: list[int] = []

    def receive(self, origin: Any, frame: Frame) -> None:
        self.received.append(frame.request)


@pytest.fixture
def timers() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, timers: list[Callable[[], None]]) -> Iterator[Node]:
    address = ProcAddress(random_name(), "worker.0")
    node = Node(address, address)

    def call_later(seconds: float, callback: Callable[[], None]) -> Timer:
        timers.append(callback)
        return Timer(callback)

    monkeypatch.setattr(node.poller, "call_later", call_later)
    yield node
    node.close(Failure(STOPPED, "the test is over"))
    unix.release_all(address.host)
    node.poller.close()


def called(request: int) -> Frame:
    return Frame(CALL, 0, 0, ACTOR, 0, request, b"step", b"")


def test_a_call_that_waits_for_a_restart_is_not_given_up_when_the_time_of_another_is_up(
    node: Node, timers: list[Callable[[], None]]
) -> None:
    origin, actor = Origin(), Receiver()
    node.dispatch(origin, called(1))  # before the actor is there
    node.register(ACTOR, actor)
    assert actor.received == [1]
    node.actors.unregister(ACTOR, Failure(EXCEPTION, "as asked", restarts=True))
    node.dispatch(origin, called(2))
    first, second = timers
    first()
    assert origin.answers == []
    second()
    assert [(answer.request, answer.flags) for answer in origin.answers] == [(2, DEAD)]
    again = Receiver()
    node.register(ACTOR, again)
    assert again.received == []


def test_who_waits_for_room_hears_of_the_end_though_nothing_was_sent_for_that(node: Node) -> None:
    full, another = ProcAddress(node.address.host, "worker.1"), ProcAddress(node.address.host, "worker.2")
    for peer in (full, another):
        origin = Origin()
        origin.peer = peer
        node.dispatch(origin, Frame(HOLD, 1, 0, ACTOR, 0, 0, b"", b""))
    rooms = [node.full[peer, ACTOR].future for peer in (full, another)]
    node.process_ended(full, Failure(KILLED, "the process was ended by SIGKILL", restarts=True))
    assert [room.done() for room in rooms] == [True, False]
    assert [*node.full] == [(another, ACTOR)]
    assert len(node.requests) == 1
