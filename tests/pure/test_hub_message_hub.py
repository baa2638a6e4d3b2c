"""The hub of a process, without a thread that runs its poller."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers.origins import Origin
from monarch._core.actors.deadlock import DeadlockDetector
from monarch._core.actors.proc_service import ProcService
from monarch._core.actors.sync_cell import SyncCell
from monarch._core.hub.control import send_record
from monarch._core.hub.control_records import ProcsEnded
from monarch._core.hub.message_hub import MessageHub
from monarch._core.hub.open_response import OpenResponse
from monarch._core.hub.pressure import Pressure
from monarch._core.hub.spawn_requests import CreatorInstance, SpawnSpec
from monarch._core.net import unix
from monarch._core.net.poller import Timer
from monarch._core.shape import Extent, Point
from monarch._core.supervision.failure import EXCEPTION, KILLED, STOPPED, Failure
from monarch._core.wire.address import ActorAddress, ProcAddress, random_name
from monarch._core.wire.frame import CALL, DEAD, GONE, PAUSE, URGENT, Frame
from monarch.config import configured

ACTOR = 7


class Receiver:
    def __init__(self) -> None:
        self.received: list[int] = []

    def receive(self, origin: Any, frame: Frame) -> None:
        self.received.append(frame.request)


@pytest.fixture
def timers() -> list[Callable[[], None]]:
    return []


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, timers: list[Callable[[], None]]) -> Iterator[MessageHub]:
    address = ProcAddress(random_name(), "worker.0")
    hub = MessageHub(address, address)
    hub.listen()

    def call_later(seconds: float, callback: Callable[[], None]) -> Timer:
        timers.append(callback)
        return Timer(callback)

    monkeypatch.setattr(hub.poller, "call_later", call_later)
    yield hub
    hub.close(Failure(STOPPED, "the test is over"))
    unix.release_all(address.host)
    hub.poller.close()


def called(request: int) -> Frame:
    return Frame(CALL, 0, 0, ACTOR, 0, request, b"step", b"")


def test_a_call_waiting_for_a_restart_outlasts_the_time_of_another(
    hub: MessageHub, timers: list[Callable[[], None]]
) -> None:
    origin, actor = Origin(), Receiver()
    hub.dispatch(origin, called(1))  # before the actor is there
    hub.register(ACTOR, actor)
    assert actor.received == [1]
    hub.actors.unregister(ACTOR, Failure(EXCEPTION, "as asked", restarts=True))
    hub.dispatch(origin, called(2))
    first, second = timers
    first()
    assert origin.answers == []
    second()
    assert [(answer.request, answer.flags) for answer in origin.answers] == [(2, DEAD)]
    again = Receiver()
    hub.register(ACTOR, again)
    assert again.received == []


def test_who_waits_for_room_hears_of_the_end_though_nothing_was_sent_for_that(
    hub: MessageHub,
) -> None:
    full, another = (
        ProcAddress(hub.address.host, "worker.1"),
        ProcAddress(hub.address.host, "worker.2"),
    )
    for peer in (full, another):
        origin = Origin()
        origin.peer = peer
        hub.dispatch(origin, Frame(PAUSE, 1, 0, ACTOR, 0, 0, b"", b""))
    rooms = [hub.full[peer, ACTOR].future for peer in (full, another)]
    hub.process_ended(full, Failure(KILLED, "the process was ended by SIGKILL", restarts=True))
    assert [room.done() for room in rooms] == [True, False]
    assert [*hub.full] == [(another, ACTOR)]
    assert len(hub.requests) == 1


LIMIT = 1 << 20


def large(request: int, flags: int = 0) -> Frame:
    return called(request)._replace(payload=bytes(LIMIT // 2), flags=flags)


def holds(origin: Origin) -> list[int]:
    """What a sender was told of the queue: 1 that it is full, 0 that it is so no more."""
    return [answer.flags for answer in origin.answers if answer.kind == PAUSE]


@pytest.fixture
def small_mailboxes() -> Iterator[None]:
    with configured(mailbox_bytes_limit=LIMIT):
        yield


@pytest.mark.usefixtures("small_mailboxes")
def test_senders_to_an_actor_that_is_not_there_yet_are_held_as_by_a_full_mailbox(
    hub: MessageHub,
) -> None:
    origin, actor = Origin(), Receiver()
    for request in (1, 2):
        hub.dispatch(origin, large(request))
    assert holds(origin) == []
    hub.dispatch(origin, large(3))
    assert holds(origin) == [1]
    hub.dispatch(origin, large(4, URGENT))  # supervision, say: it never waits, and holds up nobody
    hub.register(ACTOR, actor)
    assert actor.received == [1, 2, 3, 4]
    assert holds(origin) == [1, 0]


@pytest.mark.usefixtures("small_mailboxes")
def test_urgent_calls_to_an_actor_that_is_not_there_yet_block_no_caller(hub: MessageHub) -> None:
    origin = Origin()
    for request in range(5):
        hub.dispatch(origin, large(request, URGENT))
    assert holds(origin) == []


@pytest.mark.usefixtures("small_mailboxes")
@pytest.mark.parametrize("known", [True, False], ids=["it is known not to come", "its time is up"])
def test_senders_to_an_actor_that_never_comes_are_let_go(
    hub: MessageHub, timers: list[Callable[[], None]], known: bool
) -> None:
    origin = Origin()
    for request in (1, 2, 3):
        hub.dispatch(origin, large(request))
    if known:
        hub.actors.refuse_early(ACTOR, Failure(STOPPED, "as asked"))
    else:
        timers[0]()
    assert [answer.request for answer in origin.answers if answer.flags == DEAD] == [1, 2, 3]
    assert holds(origin) == [1, 0]


@pytest.mark.usefixtures("small_mailboxes")
def test_a_sender_that_is_held_just_as_the_actor_comes_is_let_go(
    hub: MessageHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin, actor = Origin(), Receiver()
    came = Pressure.came

    def registered_before(pressure: Pressure, origin: Any, frame: Frame) -> None:
        if frame.request == 3:
            hub.register(ACTOR, actor)
        came(pressure, origin, frame)

    monkeypatch.setattr(Pressure, "came", registered_before)
    for request in (1, 2, 3):
        hub.dispatch(origin, large(request))
    assert actor.received == [1, 2, 3]
    assert holds(origin) == [1, 0]


class EndsAsItIsToldToWait(Origin):
    """A caller whose word to wait comes as the actor ends, on another thread."""

    def __init__(self) -> None:
        super().__init__()
        self.cell: Any = None

    def send(self, frame: Frame) -> bool:
        super().send(frame)
        if frame.kind == PAUSE and frame.flags:
            self.cell.end(Failure(STOPPED, "enough"))
        return True


@pytest.mark.parametrize("limit", ["mailbox_limit", "mailbox_bytes_limit"])
def test_who_is_told_to_wait_as_an_actor_ends_is_let_go(hub: MessageHub, limit: str) -> None:
    origin = EndsAsItIsToldToWait()
    owner = CreatorInstance("root", None, Point(0, Extent([], [])), None, None)
    spec = SpawnSpec(
        ACTOR, "store", "Store", ActorAddress(hub.address, 2), owner, None, Extent([], [])
    )
    hub.detector = DeadlockDetector(hub)
    with configured(
        mailbox_limit=1 if limit == "mailbox_limit" else 100, mailbox_bytes_limit="4KiB"
    ):
        cell = origin.cell = SyncCell(hub, spec, 0, (b"", []))
    hub.register(ACTOR, cell)
    for request in (1, 2):
        hub.dispatch(origin, Frame(CALL, 0, 0, ACTOR, 0, request, b"step", b"x" * 3000))
    assert [frame.flags for frame in origin.answers if frame.kind == PAUSE] == [1, 0]
    assert sorted(frame.request for frame in origin.answers if frame.flags == DEAD) == [1, 2]
    assert not cell.pressure.paused


def test_a_requester_that_goes_is_forgotten_while_other_threads_answer(hub: MessageHub) -> None:
    gone, another = (
        ProcAddress(hub.address.host, "gone.0"),
        ProcAddress(hub.address.host, "another.0"),
    )
    unanswered = OpenResponse(ACTOR, Origin(), called(1), hub.address, lambda: None)

    class Gone(ProcAddress):
        """As another thread answers one call, and takes up the next, whenever this is compared."""

        __hash__ = ProcAddress.__hash__
        numbers = itertools.count(100)

        def __eq__(self, other: object) -> bool:
            hub.open_responses.pop((another, 1, 0), None)
            hub.open_responses[another, next(self.numbers), 0] = unanswered
            return ProcAddress.__eq__(self, other)

    for number in range(5):
        hub.open_responses[gone, number, 0] = hub.open_responses[another, number, 0] = unanswered
    hub.requester_gone(Gone(*gone))
    assert {key[0] for key in hub.open_responses} == {another}


def test_the_last_words_of_a_process_come_before_the_news_of_its_end(hub: MessageHub) -> None:
    ProcService(hub)
    worker, heard = ProcAddress(hub.address.host, "worker.1"), []

    class Owner:
        def receive(self, origin: Any, frame: Frame) -> None:
            heard.append("its last words")

    def lost(address: ProcAddress, failure: Failure) -> None:
        heard.append("its end")
        hub.poller.stop()

    hub.register(ACTOR, Owner())
    hub.peer_lost_hooks.append(lost)
    dead = MessageHub(worker, hub.address)
    dead.cast([hub.address], ACTOR, b"", (b"", ()), flags=URGENT)
    dead.close(Failure(KILLED, "the test ends it"))
    dead.poller.close()
    killed = Failure(KILLED, "the process was ended by SIGKILL", pid=100)
    send_record(hub, [hub.address], ProcsEnded([(worker, killed)]))  # read at once, by this thread
    hub.poller.run()
    assert heard == ["its last words", "its end"]


def test_any_bytes_may_be_the_reason_for_which_a_peer_parts(hub: MessageHub) -> None:
    origin: Any = Origin()
    hub.dispatch(origin, Frame(GONE, 0, 0, 0, 0, 0, b"no room\xec", b""))
    assert origin.parting == "no room\ufffd"
