"""State on its way from ranks that train it to actors that compute with it, such as generators.

Ranks share the memory that they train in. A board has the news: who shares, and after which step.
Followers hear of it, and pull from that memory when it suits them. No rank waits for a follower.

What ends the waits: for news, the end of the board, or of the follower; for tensors, what ends
`monarch.rdma.Replica.pull`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from .._core.plane import random_uid
from ..actor import Actor, SupervisionError, concurrent_endpoint
from ..rdma import RDMAError, Replica, SharedState, share_state
from .world import World

_AGAIN = 0.1  # seconds after a pull that has found ranks a step apart, or none


class News(NamedTuple):
    """The ranks that share a state, and how new it is.

    Attributes:
        publisher: A number of its own.
        first: The step before which that began.
        step: The step before which the state is.
        sources: What ranks share, each of which has had ``step - first`` changes; empty for who has
            them already.
    """

    publisher: int
    first: int
    step: int
    sources: Sequence[SharedState]


class StateBoard(Actor):
    """An actor that has the news. Spawn it where it lives as long as the program."""

    def __init__(self) -> None:
        self._news: News | None = None
        self._changed = asyncio.Event()

    @concurrent_endpoint
    async def publish(self, news: News) -> None:
        """Have newer news.

        Args:
            news: From a publisher.
        """
        self._news = news
        self._changed.set()
        self._changed = asyncio.Event()

    @concurrent_endpoint
    async def newer(self, publisher: int, step: int) -> News:
        """Wait for news of another publisher or step.

        Args:
            publisher: The number of the one that is known already.
            step: Its step that is known already.

        Returns:
            The newest news; without sources, if they are those of that publisher.
        """
        while (news := self._news) is None or (news.publisher, news.step) == (publisher, step):
            await self._changed.wait()
        return news._replace(sources=()) if news.publisher == publisher else news


class StatePublisher:
    """The side of a rank that trains: make one in each world.

    Args:
        board: Where followers look.
        state: Tensors by name, which are shared where they are.
        world: Of the ranks; None: this process trains alone.
        sharded: Each rank has a part (FSDP2), so followers read from all. By default all have the
            whole, and followers read from rank 0.
        step: The first one, where there is no world.

    Raises:
        KeyError, TypeError, ValueError: As `monarch.rdma.share_state`; or it is sharded, and there
            is no world.
    """

    def __init__(
        self,
        board: StateBoard,
        state: Mapping[str, Any],
        *,
        world: World | None = None,
        sharded: bool = False,
        step: int = 0,
    ) -> None:
        if sharded and world is None:
            raise ValueError("sharded=True: the ranks that have the parts are those of a world=")
        self._board, self._speaks = board, world is None or world.rank == 0
        self._first = self.step = step if world is None else world.step
        self._uid = random_uid()
        self._shared = share_state(state, copy=False)
        self._sources = world.gather(self._shared) if world and sharded else [self._shared]
        self._publish()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Guard what changes the state, once in each step: a pull that overlaps begins again."""
        with self._shared.writing():
            yield
        self.step += 1
        self._publish()

    def _publish(self) -> None:
        if self._speaks:
            self._board.publish.broadcast(News(self._uid, self._first, self.step, self._sources))

    def __repr__(self) -> str:
        return f"<StatePublisher of {self._shared!r}, before step {self.step}>"


class StateFollower:
    """The side of an actor that computes with the state, in async endpoints.

    Args:
        board: Where publishers tell of it.
        state: Tensors by name, which `pull` overwrites.

    Attributes:
        version: The step before which this state is; -1: it was not pulled yet.
        changed: Set when a pull may find something newer. Others may set it, too, to wake who
            waits for it.

    Raises:
        TypeError: Something in the state is no tensor of torch.
    """

    def __init__(self, board: StateBoard, state: Mapping[str, Any]) -> None:
        for name, each in state.items():
            if not hasattr(each, "copy_"):
                raise TypeError(f"StateFollower: {name!r} is {each!r}, expected a tensor of torch")
        self.version = -1
        self.changed = asyncio.Event()
        self._board, self._state = board, {name: each.detach() for name, each in state.items()}
        # A pull that fails leaves a mixture: not in the tensors that are in use.
        self._staged = {name: each.clone() for name, each in self._state.items()}
        self._news: News | None = None
        self._replica: Replica | None = None
        self._reads = -1  # the publisher that the replica reads from
        self._has = -1, -1  # publisher and step
        self._listening: asyncio.Task[None] | None = None
        self._pulls = asyncio.Lock()  # several requests may ask at once

    async def pull(self) -> bool:
        """Get the newest state, if there is a newer one; the first call begins to listen.

        Returns:
            Whether the state is another than at the call, by this one or by another that ran.

        Raises:
            SupervisionError: The board has ended, and with it all news.
        """
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
            self._listening.add_done_callback(self._heard_the_last)
        if self._listening.done():
            self._listening.result()
        had = self._has
        async with self._pulls:
            await self._pull()
        return self._has != had

    def close(self) -> None:
        """Hear of nothing any more. The tensors keep their values."""
        if self._listening is not None:
            self._listening.cancel()
        if self._replica is not None:
            self._replica.drop()

    async def _pull(self) -> None:
        self.changed.clear()
        if (news := self._news) is None:
            return
        try:
            if self._replica is None or self._reads != news.publisher:
                self._replica = Replica(news.sources, self._staged)
                self._reads = news.publisher
            versions = {each for each in await self._replica.pull() if each is not None}
        except (RDMAError, SupervisionError):  # those ranks are gone, or were not to be reached
            self._replica, versions = None, set()
        if len(versions) != 1:  # ranks that are a step apart will soon agree
            # again soon: ranks that wait for what followers make of this state have no news
            asyncio.get_running_loop().call_later(_AGAIN, self.changed.set)
            return
        step = news.first + versions.pop()
        if self._has != (news.publisher, step):
            for name, each in self._state.items():
                each.copy_(self._staged[name])
            self._has, self.version = (news.publisher, step), step

    def _heard_the_last(self, listening: asyncio.Task[None]) -> None:
        if not listening.cancelled():
            listening.exception()  # for `pull`, if it is called again; asyncio would log it
        self.changed.set()

    async def _listen(self) -> None:
        publisher = step = -1
        while True:
            news = await self._board.newer.call_one(publisher, step)
            if self._news is not None and news.publisher == publisher:
                news = news._replace(sources=self._news.sources)
            self._news, publisher, step = news, news.publisher, news.step
            self.changed.set()

    def __repr__(self) -> str:
        return f"<StateFollower of {len(self._state)} tensors, version {self.version}>"
