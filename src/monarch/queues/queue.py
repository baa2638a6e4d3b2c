"""A bounded queue between actors of any process: `Queue`, and the actor that keeps it."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Iterator
from heapq import heapify, heappop, heappush
from queue import Empty as Empty
from queue import Full as Full
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from .._core.plane import map_future, when_done
from ..actor import Actor, Future, ProcMesh, concurrent_endpoint
from .arguments import one_proc, seconds, whole
from .line import done
from .sealed import Sealed

T = TypeVar("T")
Refusal: TypeAlias = "type[Empty | Full | QueueClosed]"
Given: TypeAlias = "tuple[int, Sealed]"
"""The ticket by which a consumer says that an item has reached it, and the item."""


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
    """Keeps the items, and those who wait: consumers for an item, producers for room. Each line is served in its order."""

    def __init__(self, maxsize: int, lease: float) -> None:
        self._maxsize = maxsize
        self._lease = lease
        self._items: list[Given] = []  # a heap: what comes back is again where it was
        self._given: dict[int, tuple[Sealed, asyncio.TimerHandle]] = {}
        self._consumers: deque[asyncio.Future[Given | Refusal]] = deque()
        self._producers: deque[tuple[asyncio.Future[Refusal | None], Sealed]] = deque()
        self._tickets = itertools.count()
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
    async def get(self, timeout: float | None) -> Given | Refusal:
        given: asyncio.Future[Given | Refusal] = asyncio.get_running_loop().create_future()
        self._consumers.append(given)
        self._move()
        return given.result() if await done(given, self._consumers, given, timeout) else Empty

    @concurrent_endpoint
    async def has_arrived(self, ticket: int) -> None:
        kept = self._given.pop(ticket, None)
        if kept is not None:
            kept[1].cancel()
        else:  # later than its lease: it may be there again
            self._items = [each for each in self._items if each[0] != ticket]
            heapify(self._items)
        self._move()

    @concurrent_endpoint
    async def statistics(self) -> QueueStatistics:
        return QueueStatistics(len(self._items), len(self._given), len(self._consumers), len(self._producers))

    @concurrent_endpoint
    async def close(self) -> None:
        self._closed = True
        for waiting, _ in self._producers:
            waiting.set_result(QueueClosed)
        self._producers.clear()
        self._move()

    def _move(self) -> None:
        """Let items in while there is room, and out while somebody waits for one."""
        while True:
            if self._producers and len(self._items) < self._maxsize:
                taken, item = self._producers.popleft()
                heappush(self._items, (next(self._tickets), item))
                taken.set_result(None)
            elif self._consumers and self._items:
                self._consumers.popleft().set_result(self._give())
            else:
                break
        if self._closed and not self._items and not self._given:  # nothing can come back any more
            while self._consumers:
                self._consumers.popleft().set_result(QueueClosed)

    def _give(self) -> Given:
        ticket, item = heappop(self._items)
        timer = asyncio.get_running_loop().call_later(self._lease, self._take_back, ticket)
        self._given[ticket] = item, timer
        return ticket, item

    def _take_back(self, ticket: int) -> None:
        """Its consumer has not said in time that it is there: that process has ended, or the way to it."""
        heappush(self._items, (ticket, self._given.pop(ticket)[0]))
        self._move()


class Queue(Generic[T]):
    """A bounded queue in first-in, first-out order, for any number of producers and consumers in any process.

    The handle is sent in messages, and to the constructors of actors. An item is pickled where it is put, and unpickled where it
    is taken: the process between needs neither its class nor its libraries. An item on its way to a consumer whose process ends
    is given to another one, after `lease` seconds.

    Args:
        procs: A mesh of one process, which keeps the items.
        maxsize: Items that it holds, at least 1. Who puts one more waits for room.
        name: Of its actor, as failures and logs show it.
        lease: Seconds in which an item must reach its consumer. A process that stands still for longer on its way may take an
            item that another one has been given, too.

    Raises:
        ValueError: `procs` has more than one process, or a number is out of range.
    """

    def __init__(self, procs: ProcMesh, maxsize: int, *, name: str = "queue", lease: float = 30.0) -> None:
        whole(maxsize, "maxsize")
        self._name, self._maxsize = name, maxsize
        self._actor = one_proc(procs, "Queue").spawn(name, QueueActor, maxsize, seconds(lease, "lease"))

    def put(self, item: T, timeout: float | None = None) -> Future[None]:
        """Put an item at the end.

        Args:
            item: Anything that can be sent in a message.
            timeout: Seconds to wait for room; 0 does not wait, None waits as long as the queue is there.

        Returns:
            A future that is done when the item is in the queue. It raises `Full` where no room was made in time, `QueueClosed`
            after `close`, and `SupervisionError` when the process of the queue has ended.
        """
        return map_future(self._actor.put.call_one(Sealed.of(item), _limit(timeout)), _raise)

    def get(self, timeout: float | None = None) -> Future[T]:
        """Take the first item.

        Args:
            timeout: Seconds to wait for one; 0 does not wait, None waits as long as the queue is there. Give the limit here, and
                not to the future: a future that nobody reads takes an item all the same.

        Returns:
            A future of the item. It raises `Empty` where none came in time, `QueueClosed` when there will be none, and
            `SupervisionError` when the process of the queue has ended.
        """
        given = self._actor.get.call_one(_limit(timeout))
        when_done(given, self._confirm)
        return map_future(given, _open)

    def qsize(self) -> Future[int]:
        """How many items are in it now."""
        return map_future(self.statistics(), lambda found: found.items)

    def statistics(self) -> Future[QueueStatistics]:
        """Its items, and who waits."""
        return self._actor.statistics.call_one()

    def close(self) -> Future[None]:
        """Take no more items. Consumers get those that are there, then `QueueClosed`, which ends their loops over this queue;
        producers that wait for room get it at once."""
        return self._actor.close.call_one()

    def _confirm(self, given: Future[Given | Refusal]) -> None:
        if given.exception() is None and isinstance(answer := given.get(), tuple):
            self._actor.has_arrived.broadcast(answer[0])

    def __iter__(self) -> Iterator[T]:
        """Its items as they come, until it is closed."""
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


def _open(answer: Given | Refusal) -> Any:
    if not isinstance(answer, tuple):
        raise answer()
    return answer[1].open()
