"""A replay buffer: items with the version of their policy, from which batches are drawn.

Any process may add items.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from .._arguments import seconds, whole
from .._core.plane import map_future
from ..actor import Actor, Future, ProcMesh, concurrent_endpoint, context
from .line import Consumer, Given, Leases, done, one_proc
from .queue import Empty, Full
from .sealed import Sealed
from .spill import Spill, Spilled

T = TypeVar("T")
Order = Literal["random", "oldest", "newest"]
_ORDERS = ("random", "oldest", "newest")


class ReplayStatistics(NamedTuple):
    """The counts of a replay buffer.

    Attributes:
        items: How many are in it.
        spilled: How many of these are on disk.
        bytes: Of those in memory.
        added: How many were ever added.
        drawn: How many were ever drawn, each draw counted.
        expired: How many were dropped because of their version.
        dropped: How many gave way to newer ones.
        version: That of the last `sample` which told one; before that, of the newest item.
        restarts: How often its process was started again: what was in it then is lost.
    """

    items: int
    spilled: int
    bytes: int
    added: int
    drawn: int
    expired: int
    dropped: int
    version: int
    restarts: int


class ReplayState(NamedTuple):
    """The content of a replay buffer, to be pickled beside a checkpoint.

    Attributes:
        version: As that of `ReplayStatistics`.
        items: Those that can be drawn, each with its version.
        batches: Those that were drawn by a number, and are not forgotten.
        keys: Of the last items, as `add` compares them.
    """

    version: int
    items: list[tuple[int, Sealed]]
    batches: dict[int, list[tuple[int, Sealed]]]
    keys: tuple[Hashable, ...] = ()


@dataclass
class _Entry:
    number: int
    version: int
    item: Sealed | Spilled
    place: int = 0  # among the keys


@dataclass(eq=False)
class _Wish:
    """A consumer that waits for a batch."""

    count: int
    order: Order
    number: int | None
    batch: asyncio.Future[Given[list[Sealed]]]


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
        lease: float,
    ) -> None:
        self._capacity = capacity
        self._consume = consume
        self._max_age = max_age
        self._memory = memory
        self._folder = folder
        self._spill: Spill | None = None
        self._random = random.Random(seed)
        self._entries: dict[int, _Entry] = {}
        self._keys: list[int] = []  # in any order, to draw from
        self._in_memory: dict[int, None] = {}
        self._leases: Leases[list[_Entry]] = Leases(lease, self._take_back)
        self._bytes = self._added = self._drawn = self._expired = self._dropped = 0
        self._version = 0
        self._is_told = False  # the version, by those who draw
        self._batches: dict[int, list[tuple[int, Sealed]]] = {}  # those that have a number
        self._wishes: deque[_Wish] = deque()
        self._known: dict[Hashable, None] = {}  # keys of the last items, as far as they have some
        self._producers: deque[tuple[asyncio.Future[None], Sealed, int, Hashable]] = deque()

    @concurrent_endpoint
    async def add(self, item: Sealed, version: int, timeout: float | None, key: Hashable) -> bool:
        """Add an item, and return whether there was room in time."""
        if key in self._known:  # of a caller who has heard of the end of the process before this
            return True
        added: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._producers.append(entry := (added, item, version, key))
        self._move()
        return await done(added, self._producers, entry, timeout) and added.result() is None

    @concurrent_endpoint
    async def sample(
        self, count: int, version: int | None, order: Order, number: int | None, timeout: float
    ) -> Given[list[Sealed]] | type[Empty]:
        if version is not None:
            self._is_told = True
            self._is_at(version)
        wish = _Wish(count, order, number, asyncio.get_running_loop().create_future())
        self._wishes.append(wish)
        self._move()
        return wish.batch.result() if await done(wish.batch, self._wishes, wish, timeout) else Empty

    @concurrent_endpoint
    async def settle(self, ticket: int, kept: bool) -> None:
        self._leases.settle(ticket, kept)

    @concurrent_endpoint
    async def clear(self) -> None:
        for key in list(self._entries):
            self._remove(key)
        self._move()

    @concurrent_endpoint
    async def forget(self, before: int) -> None:
        for number in [each for each in self._batches if each < before]:
            del self._batches[number]

    @concurrent_endpoint
    async def state(self) -> ReplayState:
        items = [(entry.version, _read(entry)) for entry in self._entries.values()]
        return ReplayState(self._version, items, self._batches, tuple(self._known))

    @concurrent_endpoint
    async def load(self, state: ReplayState) -> None:
        for key in list(self._entries):
            self._remove(key)
        self._version, self._batches = state.version, dict(state.batches)
        self._known = {}
        for version, item in state.items:
            self._take(item, version, None)
        self._known = dict.fromkeys(state.keys)
        self._move()

    @concurrent_endpoint
    async def statistics(self) -> ReplayStatistics:
        spilled = len(self._entries) - len(self._in_memory)
        return ReplayStatistics(
            len(self._entries), spilled, self._bytes, self._added, self._drawn, self._expired,
            self._dropped, self._version, context().actor_instance.incarnation,
        )  # fmt: skip

    def _move(self) -> None:
        """Take items while there is room, and give batches while the first waiter can be served."""
        while True:
            if self._producers and (not self._consume or len(self._entries) < self._capacity):
                added, item, version, key = self._producers.popleft()
                try:
                    self._take(item, version, key)
                except OSError as error:  # the disk is full
                    added.set_exception(error)
                else:
                    added.set_result(None)
            elif self._wishes and self._can_grant(self._wishes[0]):
                self._grant(self._wishes.popleft())
            else:
                return

    def _take(self, item: Sealed, version: int, key: Hashable) -> None:
        if key in self._known:  # another call with it waited for room as well
            return
        if not self._is_told and version > self._version:
            self._is_at(version)
        self._added += 1
        if self._is_too_old(version):
            self._expired += 1
        else:
            self._insert(_Entry(self._added, version, item))
        if len(self._entries) > self._capacity:
            self._remove(next(iter(self._entries)))
            self._dropped += 1
        if key is not None:
            self._known[key] = None
            if len(self._known) > 2 * self._capacity:
                del self._known[next(iter(self._known))]

    def _insert(self, entry: _Entry) -> None:
        """Spill an item to the disk.

        Where the disk has no room for what memory does not hold, it leaves the item out and
        raises OSError.
        """
        assert isinstance(entry.item, Sealed)
        key = entry.number
        entry.place = len(self._keys)
        self._keys.append(key)
        self._entries[key] = entry
        self._in_memory[key] = None
        self._bytes += entry.item.size
        try:
            self._make_room()
        except OSError:
            self._remove(key)
            raise

    def _can_grant(self, wish: _Wish) -> bool:
        return len(self._entries) >= wish.count or wish.number in self._batches

    def _grant(self, wish: _Wish) -> None:
        if wish.number in self._batches:  # who asked first may have died
            again = [item for _, item in self._batches[wish.number]]
            wish.batch.set_result((self._leases.give([]), again))
            return
        if wish.order == "random":
            keys = self._random.sample(self._keys, wish.count)
        else:
            oldest = wish.order == "oldest"
            keys = [*islice(self._entries if oldest else reversed(self._entries), wish.count)]
            keys = keys if oldest else keys[::-1]
        try:
            batch = [_read(self._entries[key]) for key in keys]
        except OSError as error:
            wish.batch.set_exception(error)
            return
        self._drawn += len(batch)
        drawn: list[_Entry] = []  # what goes with its consumer; the rest is here still
        if wish.number is not None:
            versions = (self._entries[key].version for key in keys)
            self._batches[wish.number] = list(zip(versions, batch, strict=True))
        elif self._consume:
            drawn = [
                _Entry(key, self._entries[key].version, item)
                for key, item in zip(keys, batch, strict=True)
            ]
        if self._consume:
            for key in keys:
                self._remove(key)
        wish.batch.set_result((self._leases.give(drawn), batch))

    def _take_back(self, drawn: list[_Entry]) -> None:
        """A batch has not reached its consumer."""
        self._drawn -= len(drawn)
        for entry in drawn:
            if self._is_too_old(entry.version):
                self._expired += 1
                continue
            try:
                self._insert(entry)
            except OSError:
                self._dropped += 1
        self._entries = dict(sorted(self._entries.items()))  # where they were
        self._move()

    def _is_at(self, version: int) -> None:
        """Note the policy's version, which may go back, and drop items that are now too old."""
        if version == self._version:
            return
        self._version = version
        for key, entry in list(self._entries.items()):
            if self._is_too_old(entry.version):
                self._remove(key)
                self._expired += 1

    def _is_too_old(self, version: int) -> bool:
        return self._max_age is not None and version < self._version - self._max_age

    def _make_room(self) -> None:
        while self._memory is not None and self._bytes > self._memory:
            key = next(iter(self._in_memory))
            entry = self._entries[key]
            assert isinstance(entry.item, Sealed)
            self._spill = self._spill or Spill(self._folder)
            size = entry.item.size
            entry.item = self._spill.write(entry.item)
            self._bytes -= size
            del self._in_memory[key]

    def _remove(self, key: int) -> None:
        entry = self._entries.pop(key)
        last = self._keys.pop()
        if last != key:
            self._keys[entry.place] = last
            self._entries[last].place = entry.place
        if isinstance(entry.item, Spilled):
            entry.item.forget()
        else:
            self._bytes -= entry.item.size
            del self._in_memory[key]


def _read(entry: _Entry) -> Sealed:
    return entry.item.read() if isinstance(entry.item, Spilled) else entry.item


class ReplayBuffer(Generic[T]):
    """Items with their policy's version, for any number of producers and consumers.

    They may be in any process.

    The handle is sent in messages, and to the constructors of actors. An item is pickled where it
    is added, and unpickled where it is drawn: the process between needs neither its class nor its
    libraries.

    Args:
        procs: A mesh of one process, which keeps the items.
        capacity: Items that it holds, at least 1.
        consume: Whether an item is drawn once. If so, a producer that adds one more than `capacity`
            waits until some are drawn, which holds producers to the speed of the consumers.
            Otherwise items are drawn again and again, and the oldest gives way.
        max_age: Versions that an item may be behind those who draw; older ones are dropped. None
            keeps them all.
        memory: Bytes of items to keep in memory. The rest is on disk, in files that are gone when
            the process is. None keeps all in memory.
        folder: Of these files, on the host of the process; None is its folder for temporary files.
        seed: Of random draws.
        lease: Seconds in which a batch of items that are drawn once must reach its consumer;
            otherwise they are there again.
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
        lease: float = 30.0,
        name: str = "replay",
    ) -> None:
        whole(capacity, "capacity")
        for number, what in ((max_age, "max_age"), (memory, "memory")):
            if number is not None:
                whole(number, what, least=0)
        self._name, self._capacity = name, capacity
        self._actor = one_proc(procs, "ReplayBuffer").spawn(
            name, ReplayActor, capacity, consume, max_age, memory, folder, seed,
            seconds(lease, "lease", least=0.01),
        )  # fmt: skip

    def add(
        self, item: T, version: int = 0, timeout: float | None = None, *, key: Hashable = None
    ) -> Future[None]:
        """Add an item.

        Args:
            item: Anything that can be sent in a message.
            version: Of the policy that made it. An item more than `max_age` behind the version that
                the last `sample` told, or else behind the newest item, is dropped.
            timeout: Seconds to wait for room where items are consumed; 0 does not wait, None waits
                as long as the buffer is there.
            key: The item's own, such as a number. The buffer remembers the keys of the last items,
                twice its capacity, and adds no second one with the same key. So call `add` again
                after a `SupervisionError`: it is not known whether the item came into the buffer
                that was started again, and with its key it is there once.

        Returns:
            A future that is done when the item is in the buffer. It raises `Full` where no room was
            made in time, and `SupervisionError` when the process of the buffer has ended.

        Raises:
            TypeError: `key` can't be hashed.
        """
        whole(version, "version", least=0)
        hash(key)
        limit = None if timeout is None else seconds(timeout, "timeout")
        return map_future(self._actor.add.call_one(Sealed.of(item), version, limit, key), _check)

    def sample(
        self,
        count: int,
        version: int | None = None,
        *,
        order: Order = "random",
        batch: int | None = None,
        timeout: float | None = None,
    ) -> Future[list[T]]:
        """Draw a batch of different items.

        Args:
            count: How many, from 1 to the capacity.
            version: Of the policy that will learn from them: items more than `max_age` versions
                behind it are dropped first. One that goes back to a checkpoint tells a lower one.
            order: ``"random"``, each with equal chance; ``"oldest"`` or ``"newest"``, by the time
                at which they were added.
            batch: A number, such as that of a step. Whichever process asks for the same number
                again gets the same items, whatever `count` it says, until `forget`. So a trainer
                that dies in a step, and is replaced, loses no item and uses none twice.
            timeout: Seconds to wait until there are so many; 0 does not wait, None waits as long as
                the buffer is there. A reader that waits for a large batch goes before later ones,
                even if they want less.

        Returns:
            A future of the items. It raises `Empty` where there were too few in time, and
            `SupervisionError` when the process of the buffer has ended.

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
        if batch is not None:
            whole(batch, "batch", least=0)
        limit = None if timeout is None else seconds(timeout, "timeout")

        def ask(turn: float) -> Future[Any]:
            return self._actor.sample.call_one(count, version, order, batch, turn)

        return Consumer(
            f"{self!r}.sample({count})", ask, self._actor.settle.broadcast, _open, limit
        ).begin()

    def forget(self, before: int) -> Future[None]:
        """Let go of batches that were drawn by a number.

        Args:
            before: Those with a lower number.

        Returns:
            A future that is done when they are gone.
        """
        return self._actor.forget.call_one(whole(before, "before", least=0))

    def state(self) -> Future[ReplayState]:
        """Return all items and numbered batches, for a checkpoint; they stay where they are."""
        return self._actor.state.call_one()

    def load(self, state: ReplayState) -> Future[None]:
        """Replace all that is in the buffer.

        Args:
            state: Of `state()`, maybe of another program.

        Returns:
            A future that is done when it is there.
        """
        return self._actor.load.call_one(state)

    def clear(self) -> Future[None]:
        """Drop all items."""
        return self._actor.clear.call_one()

    def statistics(self) -> Future[ReplayStatistics]:
        """Return the counts so far, and the current content's."""
        return self._actor.statistics.call_one()

    def __repr__(self) -> str:
        return f"<ReplayBuffer {self._name!r}, capacity {self._capacity}>"


def _check(added: bool) -> None:
    if not added:
        raise Full


def _open(batch: Iterable[Sealed]) -> list[T]:
    return [item.open() for item in batch]
