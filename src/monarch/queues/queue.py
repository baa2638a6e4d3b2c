"""A bounded queue between actors of any process: `Queue`, and the actor that keeps it."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Iterator
from heapq import heappop, heappush
from queue import Empty as Empty
from queue import Full as Full
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from .._arguments import seconds, whole
from .._core.plane import map_future
from ..actor import Actor, Future, ProcMesh, concurrent_endpoint
from .line import Consumer, Given, Leases, done, one_proc
from .sealed import Sealed

T = TypeVar("T")
Refusal: TypeAlias = "type[Empty | Full | QueueClosed]"


class QueueClosed(Exception):
    """The queue takes no more items, and has given away those it had."""


class QueueStatistics(NamedTuple):
    """How a queue is.

    Attributes:
        items: That are in it.
        on_their_way: Items that are on their way to a consumer.
        consumers: That wait for an item: too few come in.
        producers: That wait for room: too few go out.
    """

    items: int
    on_their_way: int
    consumers: int
    producers: int


class QueueActor(Actor):
    """Keeps the items, and those who wait: consumers for an item, producers for room.

    Each line is served in its order.
    """

    def __init__(self, maxsize: int, lease: float) -> None:
        self._maxsize = maxsize
        self._items: list[tuple[int, Sealed]] = []  # a heap: what comes back is again where it was
        self._leases: Leases[tuple[int, Sealed]] = Leases(lease, self._take_back)
        self._consumers: deque[asyncio.Future[Given[Sealed] | Refusal]] = deque()
        self._producers: deque[tuple[asyncio.Future[Refusal | None], Sealed]] = deque()
        self._numbers = itertools.count()
        self._closed = False

    @concurrent_endpoint
    async def put(self, item: Sealed, timeout: float | None) -> Refusal | None:
        if self._closed:
            return QueueClosed
        taken: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()
        self._producers.append(entry := (taken, item))
        self._move()
        return taken.result() if await done(taken, self._producers, entry, timeout) else Full

    @concurrent_endpoint
    async def get(self, timeout: float) -> Given[Sealed] | Refusal:
        given: asyncio.Future[Given[Sealed] | Refusal] = asyncio.get_running_loop().create_future()
        self._consumers.append(given)
        self._move()
        return given.result() if await done(given, self._consumers, given, timeout) else Empty

    @concurrent_endpoint
    async def settle(self, ticket: int, kept: bool) -> None:
        self._leases.settle(ticket, kept)
        self._move()

    @concurrent_endpoint
    async def statistics(self) -> QueueStatistics:
        return QueueStatistics(
            len(self._items), len(self._leases), len(self._consumers), len(self._producers)
        )

    @concurrent_endpoint
    async def close(self) -> None:
        self._closed = True
        for waiting, _ in self._producers:
            waiting.set_result(QueueClosed)
        self._producers.clear()
        self._move()

    def _move(self) -> None:
        """Let items in while there is room, and out while readers wait for them."""
        while True:
            if self._producers and len(self._items) < self._maxsize:
                taken, item = self._producers.popleft()
                heappush(self._items, (next(self._numbers), item))
                taken.set_result(None)
            elif self._consumers and self._items:
                entry = heappop(self._items)
                self._consumers.popleft().set_result((self._leases.give(entry), entry[1]))
            else:
                break
        if self._closed and not self._items and not self._leases:  # nothing can come back any more
            while self._consumers:
                self._consumers.popleft().set_result(QueueClosed)

    def _take_back(self, entry: tuple[int, Sealed]) -> None:
        heappush(self._items, entry)
        self._move()


class Queue(Generic[T]):
    """A bounded first-in, first-out queue for any number of producers and consumers.

    They may be in any process.

    The handle is sent in messages, and to the constructors of actors. An item is pickled where it
    is put, and unpickled where it is taken: the process between needs neither its class nor its
    libraries. If a consumer's process ends, an item on its way there is given to another consumer
    after `lease` seconds; if only the future was dropped, at once.

    Args:
        procs: A mesh of one process, which keeps the items.
        maxsize: Items that it holds, at least 1. A producer that puts one more waits for room.
        name: Of its actor, as failures and logs show it.
        lease: Seconds in which an item must reach its consumer. A process that stands still for
            longer on its way may take an item that another one has been given, too.

    Raises:
        ValueError: `procs` has more than one process, or a number is out of range.
    """

    def __init__(
        self, procs: ProcMesh, maxsize: int, *, name: str = "queue", lease: float = 30.0
    ) -> None:
        whole(maxsize, "maxsize")
        self._name, self._maxsize = name, maxsize
        self._actor = one_proc(procs, "Queue").spawn(
            name, QueueActor, maxsize, seconds(lease, "lease", least=0.01)
        )

    def put(self, item: T, timeout: float | None = None) -> Future[None]:
        """Put an item at the end.

        Args:
            item: Anything that can be sent in a message.
            timeout: Seconds to wait for room; 0 does not wait, None waits as long as the queue is
                there.

        Returns:
            A future that is done when the item is in the queue. It raises `Full` where no room was
            made in time, `QueueClosed` after `close`, and `SupervisionError` when the process of
            the queue has ended.
        """
        return map_future(self._actor.put.call_one(Sealed.of(item), _limit(timeout)), _raise)

    def get(self, timeout: float | None = None) -> Future[T]:
        """Take the first item.

        Args:
            timeout: Seconds to wait for one; 0 does not wait, None waits as long as the queue is
                there.

        Returns:
            A future of the item. It raises `Empty` where none came in time, `QueueClosed` when
            there will be none, and `SupervisionError` when the process of the queue has ended. It
            takes an item also before it is read; not when it was dropped, nor after a wait for it
            was cancelled or timed out, until the next wait.
        """
        actor = self._actor
        name = f"{self!r}.get()"
        return Consumer(
            name, actor.get.call_one, actor.settle.broadcast, Sealed.open, _limit(timeout)
        ).begin()

    def qsize(self) -> Future[int]:
        """How many items are in it now."""
        return map_future(self.statistics(), lambda found: found.items)

    def statistics(self) -> Future[QueueStatistics]:
        """The items, and the waiting producers and consumers."""
        return self._actor.statistics.call_one()

    def close(self) -> Future[None]:
        """Take no more items.

        Consumers get those that are there, then `QueueClosed`, which ends their loops over this
        queue; producers that wait for room get it at once.
        """
        return self._actor.close.call_one()

    def __iter__(self) -> Iterator[T]:
        """Iterate over the items as they come, until it is closed."""
        while True:
            try:
                item = self.get().get()
            except QueueClosed:
                return
            yield item

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            try:
                item = await self.get()
            except QueueClosed:
                return
            yield item

    def __repr__(self) -> str:
        return f"<Queue {self._name!r}, maxsize {self._maxsize}>"


def _limit(timeout: float | None) -> float | None:
    return None if timeout is None else seconds(timeout, "timeout")


def _raise(answer: Refusal | None) -> None:
    if answer is not None:
        raise answer()
