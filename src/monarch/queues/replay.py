"""A replay buffer: items from any process, with the version of the policy that made them, drawn in batches."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

from .._core.plane import map_future
from ..actor import Actor, Future, ProcMesh, concurrent_endpoint
from .arguments import one_proc, seconds, whole
from .line import done
from .queue import Empty, Full
from .sealed import Sealed
from .spill import Spill, Spilled

T = TypeVar("T")
Order = Literal["random", "oldest", "newest"]
_ORDERS = ("random", "oldest", "newest")


class ReplayStatistics(NamedTuple):
    """What a replay buffer has seen.

    Attributes:
        items: How many are in it.
        spilled: How many of these are on disk.
        bytes: Of those in memory.
        added: How many were ever added.
        drawn: How many were ever drawn, each draw counted.
        expired: How many were dropped because of their version.
        dropped: How many gave way to newer ones.
        version: The newest one seen.
    """

    items: int
    spilled: int
    bytes: int
    added: int
    drawn: int
    expired: int
    dropped: int
    version: int


@dataclass
class _Entry:
    version: int
    item: Sealed | Spilled


@dataclass(eq=False)
class _Wish:
    """Somebody waits for a batch."""

    count: int
    order: Order
    batch: asyncio.Future[list[Sealed]]


class ReplayActor(Actor):
    """Keeps the items in the order in which they came."""

    def __init__(
        self,
        capacity: int,
        consume: bool,
        max_age: int | None,
        memory: int | None,
        folder: str | None,
        seed: int | None,
    ) -> None:
        self._capacity = capacity
        self._consume = consume
        self._max_age = max_age
        self._memory = memory
        self._spill = None if memory is None else Spill(folder)
        self._random = random.Random(seed)
        self._entries: dict[int, _Entry] = {}
        self._in_memory: deque[int] = deque()  # may name what has gone
        self._bytes = self._added = self._drawn = self._expired = self._dropped = 0
        self._version = 0
        self._wishes: deque[_Wish] = deque()
        self._producers: deque[tuple[asyncio.Future[None], Sealed, int]] = deque()

    @concurrent_endpoint
    async def add(self, item: Sealed, version: int, timeout: float | None) -> bool:
        """Whether there was room in time."""
        added: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._producers.append(entry := (added, item, version))
        self._move()
        if not await done(added, self._producers, entry, timeout):
            return False
        added.result()
        return True

    @concurrent_endpoint
    async def sample(self, count: int, version: int | None, order: Order, timeout: float | None) -> list[Sealed] | None:
        """A batch; None if there were too few items in time."""
        if version is not None:
            self._is_at(version)
        wish = _Wish(count, order, asyncio.get_running_loop().create_future())
        self._wishes.append(wish)
        self._move()
        return wish.batch.result() if await done(wish.batch, self._wishes, wish, timeout) else None

    @concurrent_endpoint
    async def clear(self) -> None:
        for key in list(self._entries):
            self._remove(key)
        self._move()

    @concurrent_endpoint
    async def statistics(self) -> ReplayStatistics:
        spilled = sum(isinstance(entry.item, Spilled) for entry in self._entries.values())
        return ReplayStatistics(
            len(self._entries),
            spilled,
            self._bytes,
            self._added,
            self._drawn,
            self._expired,
            self._dropped,
            self._version,
        )

    def _move(self) -> None:
        """Let items in while there is room, and batches out while there are enough items for the first who waits."""
        while True:
            if self._producers and (not self._consume or len(self._entries) < self._capacity):
                self._take(*self._producers.popleft())
            elif self._wishes and len(self._entries) >= self._wishes[0].count:
                self._grant(self._wishes.popleft())
            else:
                return

    def _take(self, added: asyncio.Future[None], item: Sealed, version: int) -> None:
        self._is_at(version)
        self._added += 1
        if self._is_too_old(version):
            self._expired += 1
        else:
            if len(self._entries) == self._capacity:
                self._remove(next(iter(self._entries)))
                self._dropped += 1
            self._entries[self._added] = _Entry(version, item)
            self._in_memory.append(self._added)
            self._bytes += item.size
            try:
                self._make_room()
            except OSError as error:  # the disk is full
                self._remove(self._added)
                added.set_exception(error)
                return
        added.set_result(None)

    def _grant(self, wish: _Wish) -> None:
        keys = list(self._entries)
        if wish.order == "random":
            keys = self._random.sample(keys, wish.count)
        else:
            keys = keys[: wish.count] if wish.order == "oldest" else keys[-wish.count :]
        try:
            batch = [item.read() if isinstance(item := self._entries[key].item, Spilled) else item for key in keys]
        except OSError as error:
            wish.batch.set_exception(error)
            return
        self._drawn += len(batch)
        if self._consume:
            for key in keys:
                self._remove(key)
        wish.batch.set_result(batch)

    def _is_at(self, version: int) -> None:
        """The policy has got there: what is too old now goes."""
        if version <= self._version:
            return
        self._version = version
        for key, entry in list(self._entries.items()):
            if self._is_too_old(entry.version):
                self._remove(key)
                self._expired += 1

    def _is_too_old(self, version: int) -> bool:
        return self._max_age is not None and version < self._version - self._max_age

    def _make_room(self) -> None:
        while self._spill is not None and self._memory is not None and self._bytes > self._memory:
            entry = self._entries.get(self._in_memory[0])
            if entry is not None and isinstance(entry.item, Sealed):
                size = entry.item.size
                entry.item = self._spill.write(entry.item)
                self._bytes -= size
            self._in_memory.popleft()

    def _remove(self, key: int) -> None:
        item = self._entries.pop(key).item
        if isinstance(item, Spilled):
            item.forget()
        else:
            self._bytes -= item.size


class ReplayBuffer(Generic[T]):
    """Items with the version of the policy that made them, for any number of producers and consumers in any process.

    The handle is sent in messages, and to the constructors of actors. An item is pickled where it is added, and unpickled where
    it is drawn: the process between needs neither its class nor its libraries.

    Args:
        procs: A mesh of one process, which keeps the items.
        capacity: Items that it holds, at least 1.
        consume: Whether an item is drawn once. If so, who adds one more than `capacity` waits until some are drawn, which holds
            producers to the speed of the consumers. Otherwise items are drawn again and again, and the oldest gives way.
        max_age: Versions that an item may be behind the newest one; older ones are dropped. None keeps them all.
        memory: Bytes of items to keep in memory. The rest is on disk, in files that are gone when the process is. None keeps all
            in memory.
        folder: Of these files, on the host of the process; None is its folder for temporary files.
        seed: Of random draws.
        name: Of its actor, as failures and logs show it.

    Raises:
        ValueError: `procs` has more than one process, or a number is out of range.
    """

    def __init__(
        self,
        procs: ProcMesh,
        capacity: int,
        *,
        consume: bool = False,
        max_age: int | None = None,
        memory: int | None = None,
        folder: str | None = None,
        seed: int | None = None,
        name: str = "replay",
    ) -> None:
        whole(capacity, "capacity")
        for number, what in ((max_age, "max_age"), (memory, "memory")):
            if number is not None:
                whole(number, what, least=0)
        self._name, self._capacity = name, capacity
        self._actor = one_proc(procs, "ReplayBuffer").spawn(
            name, ReplayActor, capacity, consume, max_age, memory, folder, seed
        )

    def add(self, item: T, version: int = 0, timeout: float | None = None) -> Future[None]:
        """Add an item.

        Args:
            item: Anything that can be sent in a message.
            version: Of the policy that made it. The newest one seen is the buffer's; an item that is more than `max_age` behind
                it is dropped.
            timeout: Seconds to wait for room where items are consumed; 0 does not wait, None waits as long as the buffer is there.

        Returns:
            A future that is done when the item is in the buffer. It raises `Full` where no room was made in time, and
            `SupervisionError` when the process of the buffer has ended.
        """
        whole(version, "version", least=0)
        limit = None if timeout is None else seconds(timeout, "timeout")
        return map_future(self._actor.add.call_one(Sealed.of(item), version, limit), _check)

    def sample(
        self, count: int, version: int | None = None, *, order: Order = "random", timeout: float | None = None
    ) -> Future[list[T]]:
        """Draw a batch of different items.

        Args:
            count: How many, from 1 to the capacity.
            version: Of the policy that will learn from them: what is more than `max_age` behind it is dropped first.
            order: ``"random"``, each with equal chance; ``"oldest"`` or ``"newest"``, by the time at which they were added.
            timeout: Seconds to wait until there are so many; 0 does not wait, None waits as long as the buffer is there.

        Returns:
            A future of the items. It raises `Empty` where there were too few in time, and `SupervisionError` when the process of
            the buffer has ended.

        Raises:
            ValueError: There can't be so many, or there is no such order.
        """
        whole(count, "count")
        if count > self._capacity:
            raise ValueError(f"count is {count}, which is more than the capacity, {self._capacity}")
        if version is not None:
            whole(version, "version", least=0)
        if order not in _ORDERS:
            raise ValueError(f"order must be one of {', '.join(map(repr, _ORDERS))}, got {order!r}")
        limit = None if timeout is None else seconds(timeout, "timeout")
        return map_future(self._actor.sample.call_one(count, version, order, limit), _open)

    def clear(self) -> Future[None]:
        """Drop all items."""
        return self._actor.clear.call_one()

    def statistics(self) -> Future[ReplayStatistics]:
        """What it has seen, and holds now."""
        return self._actor.statistics.call_one()

    def __repr__(self) -> str:
        return f"<ReplayBuffer {self._name!r}, capacity {self._capacity}>"


def _check(added: bool) -> None:
    if not added:
        raise Full


def _open(batch: Iterable[Sealed] | None) -> list[T]:
    if batch is None:
        raise Empty
    return [item.open() for item in batch]
