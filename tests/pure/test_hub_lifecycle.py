"""What follows when a process is reached, lost, asked after, ended and started again: row by row,
and in any order.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from monarch._core.hub import lifecycle
from monarch._core.hub.lifecycle import BROKEN, ENDED, NEW, STARTING, TABLE, UP, Lifecycle
from monarch._core.hub.local_peer import LocalPeer
from monarch._core.net.asked import Asked
from monarch._core.supervision.failure import KILLED, LINK, Failure
from monarch._core.wire.address import ProcAddress
from monarch._core.wire.frame import CALL, URGENT, Frame

STATES = (NEW, STARTING, UP, BROKEN, ENDED)
EVENTS = (
    "wanted", "up", "refused", "busy", "short", "retry", "inquire", "listens", "ended", "fell", "cut", "parted", "kept",
    "news_ended", "news_fell",
)  # fmt: skip
OUTCOMES = ("up", "refused", "busy", "short")
ANSWERS = ("listens", "ended", "fell")
PAUSES = ("retry", "inquire")

IMPOSSIBLE = {
    "only what is not reached yet is being connected to": itertools.product(
        (UP, BROKEN, ENDED), OUTCOMES
    ),
    "there is a connection to lose": itertools.product(
        (NEW, STARTING, BROKEN, ENDED), ("cut", "parted")
    ),
    "the agent is asked about what does not listen, or has broken": itertools.product(
        (NEW, UP, ENDED), ANSWERS
    ),
    "an answer, or a pause, from before is late": itertools.product(
        (NEW, UP, BROKEN, ENDED), PAUSES
    ),
    "things are kept for the next incarnation once this one is over": itertools.product(
        (STARTING, UP, BROKEN, ENDED), ("kept",)
    ),
}
FELL = Failure(KILLED, "the process was ended by SIGKILL", restarts=True)
GONE = FELL._replace(restarts=False)


def test_every_event_in_every_state_is_in_the_table_or_impossible() -> None:
    impossible = [pair for pairs in map(list, IMPOSSIBLE.values()) for pair in pairs]
    assert len({*impossible}) == len(impossible)
    assert not {*impossible} & {*TABLE}
    assert {*impossible, *TABLE} == {*itertools.product(STATES, EVENTS)}


@pytest.mark.parametrize(("state", "event"), TABLE)
def test_a_row_of_the_table(state: str, event: str) -> None:
    life = Lifecycle("worker.0")
    life.state = state
    life.connected = 1.0 if state in (UP, BROKEN) else 0.0
    life.failure = known = GONE if state == ENDED else None
    awaited = life.awaited
    instructions = life.happen(event, FELL if "fell" in event else GONE)
    assert (life.state, instructions) == TABLE[state, event]
    assert (life.failure is not None) == (life.state == ENDED), (
        "an end is told to those who send later"
    )
    assert known is None or life.failure is known
    assert life.connected == 0 or life.state in (
        UP,
        BROKEN,
        ENDED,
    ), "the next incarnation is not connected to yet"
    assert (life.awaited != awaited) == bool(instructions), "what was awaited before is late"
    waits = {
        "ask",
        "ask_soon",
        "ask_later",
        "connect",
        "connect_soon",
        "connect_later",
        "connect_at_length",
    }
    if life.state == STARTING and state != STARTING:
        assert waits & {*instructions}, "something goes on"
    assert not {"end", "turn"} & {*instructions[1:]}, (
        "first: who hears of the end turns to the next incarnation"
    )
    assert bool({"report", "part"} & {*instructions}) <= bool({"end", "turn"} & {*instructions})


def test_outdated_answers_and_overtaken_pauses_change_nothing() -> None:
    life = Lifecycle("worker.0")
    life.happen("wanted")
    life.happen("refused")
    late = life.awaited
    assert life.paused(late, "inquire") == ("ask",)
    assert life.paused(late, "inquire") == ()
    assert life.answered(late, GONE) == ()
    assert life.answered(life.awaited, None) == ("connect_soon",)
    assert life.state == STARTING


def test_news_of_an_incarnation_that_ended_before_the_connection_was_begun_is_late() -> None:
    life = Lifecycle("worker.0")
    life.happen("wanted")
    life.reached(100.0)
    assert life.heard(FELL._replace(known=99.0)) == ()
    assert life.heard(FELL._replace(known=101.0)) == ("turn",)
    assert (life.state, life.connected) == (NEW, 0.0)


def test_a_connection_that_breaks_though_the_process_lives_has_failed_for_good() -> None:
    life = Lifecycle("worker.0")
    life.happen("wanted")
    life.reached(100.0)
    assert life.cut("") == ("ask",)
    assert life.answered(life.awaited, None) == ("end", "part")
    assert life.failure is not None
    assert (life.failure.cause, life.failure.proc) == (LINK, "worker.0")


class Connection:
    parting = ""

    def __init__(
        self, incarnation: int, on_close: Callable[[Any, str], None], requests: dict[int, object]
    ) -> None:
        self.incarnation = incarnation
        self.on_close = on_close
        self.asked = Asked(requests)
        self.writable = True
        self.sent: list[int] = []

    def send(self, frame: Frame, segment: Any = None) -> bool:
        if self.writable:
            self.sent.append(frame.request)
            self.asked.note(frame.request)
        return self.writable

    def close(self) -> None:
        self.writable = False


class World:
    """A process that listens, dies, starts again; its agent, which tells the truth; and a peer that
    sends to it.
    """

    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.address = ProcAddress("host", "client.0")
        self.requests: dict[int, object] = {}
        self.soon: list[Callable[[], None]] = []
        self.poller = SimpleNamespace(
            thread_id=None,
            call_soon=self.soon.append,
            call_later=lambda seconds, function: self.soon.append(function),
        )
        self.questions: list[tuple[float, int, Callable[[Failure | None], None]]] = []
        self.connections: list[Connection] = []
        self.incarnation = 0
        self.listens = False
        self.restarts = True
        self.ends: list[Failure] = []
        self.numbers = itertools.count(1)
        self.answered: list[int] = []
        self.peer = LocalPeer(self, ProcAddress("host", "worker.0"))  # type: ignore[arg-type]

    # the hub of the peer

    def connect(self, address: ProcAddress, on_close: Callable[[Any, str], None]) -> Connection:
        trouble = self.random.random()
        if trouble < 0.1:
            raise BlockingIOError if trouble < 0.05 else OSError
        if not self.listens:
            raise ConnectionRefusedError
        self.connections.append(Connection(self.incarnation, on_close, self.requests))
        self.connections[-1].writable = trouble > 0.2
        return self.connections[-1]

    def ask_agent(
        self, address: ProcAddress, connected: float, answer: Callable[[Failure | None], None]
    ) -> None:
        self.questions.append(
            (connected, self.connections[-1].incarnation if connected else -1, answer)
        )

    def process_ended(
        self, address: ProcAddress, failure: Failure, witness: LocalPeer, ended: Collection[int]
    ) -> None:
        self.tell(address, failure, ended)

    def tell(self, address: ProcAddress, failure: Failure, ended: Collection[int]) -> None:
        for number in ended:
            if self.requests.pop(number, None) is not None:
                self.answered.append(number)

    # what may happen

    def send(self) -> None:
        number = next(self.numbers)
        self.requests[number] = object()
        frame = Frame(CALL, self.random.choice([0, 0, URGENT]), 0, 7, 0, number, b"step", b"")
        if self.peer.send(frame) is not None:
            del self.requests[number]
            self.answered.append(number)

    def start(self) -> None:
        if not self.listens and self.restarts:
            self.listens = True

    def die(self) -> None:
        if self.listens:
            self.listens = False
            self.ends.append(FELL._replace(incarnation=self.incarnation, known=time.monotonic()))
            self.incarnation += 1

    def end(self) -> None:
        self.restarts = False
        if self.listens:
            self.die()
        self.ends.append(GONE)

    def hang_up(self) -> None:
        """The connection of a process that died, which nobody has read yet."""
        for connection in self.connections:
            if connection.incarnation < self.incarnation:
                connection.close()

    def break_(self) -> None:
        self.hang_up()
        for connection in self.connections:
            if not connection.writable:
                connection.on_close(connection, "it closed the connection")

    def cut(self) -> None:
        """The connection breaks, though the process lives."""
        if self.connections:
            self.connections[-1].parting = self.random.choice(["", "no descriptor is left"])
            self.connections[-1].close()
            self.break_()

    def tell_news(self) -> None:
        if self.ends:
            news, connection = self.random.choice(self.ends), self.peer.connection
            ended = self.peer.end(news)
            if (
                news.restarts
                and isinstance(connection, Connection)
                and connection.incarnation > news.incarnation
            ):
                assert (ended, self.peer.connection) == ((), connection), "they came late"
            self.tell(self.peer.address, news, ended)

    def answer(self) -> None:
        """What the agent knows the answer of, as `Agent.on_resolve` does."""
        for question in self.questions.copy():
            connected, incarnation, answer = question
            if not self.restarts:
                end: Failure | None = self.ends[-1]
            elif connected and incarnation < self.incarnation:
                end = next(end for end in self.ends if end.incarnation == incarnation)
            elif self.listens:
                end = None
            else:
                continue
            self.questions.remove(question)
            answer(end)

    def run(self) -> None:
        for function in [self.soon.pop(0) for _ in self.soon.copy()]:
            function()


@pytest.mark.parametrize("seed", range(4))
def test_in_any_order_of_events_each_call_is_answered_or_with_the_process(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    visited: set[tuple[str, str]] = set()

    class Recorded(dict[tuple[str, str], tuple[str, tuple[str, ...]]]):
        def __getitem__(self, key: tuple[str, str]) -> tuple[str, tuple[str, ...]]:
            visited.add(key)
            return super().__getitem__(key)

    monkeypatch.setattr(lifecycle, "TABLE", Recorded(TABLE))
    for number in range(500):
        choices = random.Random(1000 * seed + number)
        world = World(choices)
        what = [
            world.send,
            world.start,
            world.die,
            world.hang_up,
            world.break_,
            world.tell_news,
            world.answer,
            world.run,
        ]
        for _ in range(60):
            (
                choices.choice(what)()
                if choices.random() < 0.98
                else choices.choice([world.cut, world.end])()
            )
        if choices.random() < 0.5:
            world.start()
        else:
            world.end()
        for _ in range(200):  # until nothing is to be done any more
            world.break_()
            world.answer()
            world.run()
        assert not world.soon and not world.questions
        assert not len(world.peer._backlog), "nothing waits for ever"
        connection: Any = world.peer.connection
        with_it = set() if connection is None else {*connection.sent}
        assert {*world.requests} <= with_it
        assert len({*world.answered}) == len(world.answered)
        if connection is not None:
            assert connection.incarnation == world.incarnation and world.listens
    # what this agent never says: it has another one started
    assert visited == {*TABLE} - {(STARTING, "fell")}
