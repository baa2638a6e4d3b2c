"""Calls that are answered through a port: whether a copy is left that could answer."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

from helpers.each import for_each
from monarch._core.hub.open_response import ARRIVED, GONE, HANDED_ON, OpenResponse
from monarch._core.supervision.failure import EXITED, Failure
from monarch._core.wire.address import ProcAddress

PROCESSES = [ProcAddress("host", f"p.{number}") for number in range(4)]
HERE = PROCESSES[0]


@dataclass
class World:
    """Copies of the port of one call, and the messages by which they go from process to process.

    News of one process arrive in its order, those of several in any.
    """

    random: random.Random
    copies: list[ProcAddress] = field(default_factory=lambda: [HERE])
    mailboxes: list[tuple[int, int, ProcAddress]] = field(
        default_factory=list
    )  # message, ranks, to
    news: dict[ProcAddress, deque[tuple[int, int, int]]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    dead: set[ProcAddress] = field(default_factory=set)
    messages: int = 0

    def __post_init__(self) -> None:
        nothing: Any = None
        self.call = OpenResponse(1, nothing, nothing, HERE, self.check)
        self.is_lost = False

    def check(self) -> None:
        self.is_lost = self.call.is_lost()

    def hand_on(self) -> None:
        if self.copies:
            holder = self.random.choice(self.copies)
            self.messages += 1
            self.news[holder].append((HANDED_ON, self.messages, 0))
            to = [self.random.choice(PROCESSES) for _ in range(self.random.randint(1, 3))]
            self.mailboxes += [(self.messages, len(to), each) for each in to]

    def arrive(self) -> None:
        if self.mailboxes:
            message, ranks, to = self.mailboxes.pop(self.random.randrange(len(self.mailboxes)))
            self.news[to].append((ARRIVED, message, ranks))
            self.copies.append(to)

    def drop(self) -> None:
        if self.copies:
            holder = self.copies.pop(self.random.randrange(len(self.copies)))
            self.news[holder].append((GONE, 0, 0))

    def tell(self) -> None:
        told = [each for each, waiting in self.news.items() if waiting]
        if told:
            holder = self.random.choice(told)
            self.call.hear(holder, *self.news[holder].popleft())

    def die(self) -> None:
        """A process with copies, and none in its mailbox: those are waited for."""
        living = set(self.copies) - {HERE} - {to for _, _, to in self.mailboxes}
        if living:
            victim = self.random.choice(sorted(living))
            self.copies = [each for each in self.copies if each != victim]
            while self.news[victim]:  # its end is heard after all that it has said
                self.call.hear(victim, *self.news[victim].popleft())
            self.call.process_gone(victim, Failure(EXITED, "it was told to"))


@for_each("seed", range(300))
def test_a_call_is_lost_when_all_copies_are_gone_and_never_before(seed: int) -> None:
    world = World(random.Random(seed))
    steps = [world.hand_on, world.arrive, world.drop, world.tell, world.tell, world.die]
    for _ in range(60):
        world.random.choice(steps)()
        if world.is_lost:
            assert not world.copies and not world.mailboxes
    while world.copies or world.mailboxes or any(world.news.values()):
        world.random.choice([world.arrive, world.drop, world.tell])()
        if world.is_lost:
            assert not world.copies and not world.mailboxes
    assert world.is_lost


def test_a_message_that_has_not_arrived_on_all_of_its_ranks_is_waited_for() -> None:
    world = World(random.Random(0))
    call, (_, one, other, _) = world.call, PROCESSES
    call.hear(HERE, HANDED_ON, 1, 0)
    call.hear(HERE, GONE, 0, 0)
    call.hear(one, ARRIVED, 1, 2)
    call.hear(one, GONE, 0, 0)
    assert not world.is_lost
    call.hear(other, ARRIVED, 1, 2)
    assert not world.is_lost
    call.process_gone(other, Failure(EXITED, "it was told to"))
    assert world.is_lost and call.death == Failure(EXITED, "it was told to")
