"""Weights on their way from trainers to generators.

Trainers share the memory that they train in. A board has the news: who shares, and after which
step. Generators wait for news beside their work, and pull between two bytes; what they pull comes
from the trainers' memory. No trainer waits for a generator, and the two may be laid out otherwise.

The board lives beside the program, and ends with it. Elsewhere its end could lose news for which
generators wait, and trainers for them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from monarch.actor import Actor, SupervisionError, concurrent_endpoint
from monarch.elastic import World
from monarch.rdma import RDMAError, Replica, SharedState, share_state

from .model import learned


@dataclass(frozen=True)
class News:
    """Who shares the weights.

    Attributes:
        world: Of trainers, by its number.
        first: The step before which this world began.
        step: The step before which the weights are.
        sources: Of these ranks; each has had `step - first` changes.
    """

    world: int
    first: int
    step: int
    sources: list[SharedState]


class Board(Actor):
    """Has the news, and tells who waits for some."""

    def __init__(self) -> None:
        self.news: News | None = None
        self.changed = asyncio.Event()

    @concurrent_endpoint
    async def publish(self, news: News) -> None:
        self.news = news
        self.changed.set()
        self.changed = asyncio.Event()

    @concurrent_endpoint
    async def newer(self, world: int, step: int) -> News:
        """The news, once it is of another world or step."""
        while self.news is None or (self.news.world, self.news.step) == (world, step):
            await self.changed.wait()
        return self.news


# region publisher
class Publisher:
    """The side of a trainer, in one world."""

    def __init__(self, world: World, policy: nn.Module, board: Board, sharded: bool) -> None:
        self.world, self.board, self.first = world, board, world.step
        # where they are: nothing is copied
        self.shared = share_state(learned(policy), copy=False)
        # where each rank has a part, generators read from all
        self.sources = world.gather(self.shared) if sharded else [self.shared]
        self.publish(world.step)

    @contextmanager
    def writing(self, step: int) -> Iterator[None]:
        """The weights change: a pull that overlaps begins again."""
        with self.shared.writing():
            yield
        self.publish(step + 1)

    def publish(self, step: int) -> None:
        if self.world.rank == 0:
            self.board.publish.broadcast(News(self.world.number, self.first, step, self.sources))


# endregion


# region follower
class Follower:
    """The side of a generator."""

    def __init__(self, policy: nn.Module, board: Board) -> None:
        self.version = -1  # the step before which these weights are
        self.stirred = asyncio.Event()  # there is news, or work
        self.news: News | None = None
        self._board = board
        self._target = learned(policy)
        # A pull that fails leaves a mixture: not in the weights that are in use.
        self._staged = {name: each.detach().clone() for name, each in self._target.items()}
        self._replica: Replica
        self._world = -1  # that the replica reads
        self._here = -1, -1  # world and step of the weights

    async def listen(self) -> None:
        """Hear of news, until cancelled."""
        seen = -1, -1
        while True:
            self.news = await self._board.newer.call_one(*seen)
            seen = self.news.world, self.news.step
            self.stirred.set()

    async def pull(self) -> bool:
        """Get the newest weights, if there are newer ones; whether these are others now."""
        self.stirred.clear()
        if (news := self.news) is None:
            return False
        try:
            if news.world != self._world:
                self._replica, self._world = Replica(news.sources, self._staged), news.world
            versions = {each for each in await self._replica.pull() if each is not None}
        except (RDMAError, SupervisionError):  # those trainers are gone, or were not to be reached
            self._world, versions = -1, set()
        if len(versions) != 1:  # ranks that are a step apart will soon agree
            # pull again soon: trainers that wait for what these weights are to say have no news
            asyncio.get_running_loop().call_later(0.1, self.stirred.set)
            return False
        here = news.world, news.first + versions.pop()
        if self._here == here:
            return False
        for name, each in self._target.items():
            each.detach().copy_(self._staged[name])
        self._here, self.version = here, here[1]
        return True


# endregion
