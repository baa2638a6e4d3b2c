"""`DataFeed`: loaders on the procs of a mesh, and an iterator of batches for each rank.

A rank has `prefetch` calls under way to its loaders, and a loader works on one at a time: so it
makes no more than these, and waits while no batch is asked for. What ends the wait for a batch: the
batch, the error of the data set, the end of the loader where it is not started again, or `timeout`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from .._arguments import seconds, whole
from .._core.plane import when_done
from ..actor import Actor, Future, ProcMesh, current_rank, endpoint
from .order import Order

T = TypeVar("T")


@dataclass(frozen=True)
class LoaderInfo:
    """Which loader makes the batches.

    Attributes:
        index: From 0.
        count: How many there are.
    """

    index: int
    count: int


class _End(NamedTuple):
    """Stands for the batch after the last one."""


class Loader(Actor):
    """Gives the items of an iterable by number.

    It makes the iterable anew to go back, and when it has raised an error.
    """

    def __init__(
        self, make_loader: Callable[[LoaderInfo], Iterable[Any]], count: int, prefetch: int
    ) -> None:
        self._make = make_loader
        self._info = LoaderInfo(current_rank().rank, count)
        self._prefetch = prefetch
        self._items: Iterator[Any] | None = None
        self._next = 0
        # item before `_next`, which is asked for again when its answer came too late
        self._last: Any = None
        # items before that: after a restart, calls may come out of order
        self._passed: dict[int, Any] = {}

    @endpoint
    def take(self, item: int) -> Any:
        if item in self._passed:
            return self._passed.pop(item)
        if self._items is None or item < self._next - 1:
            self._items, self._next = iter(self._make(self._info)), 0
            self._passed.clear()
        try:
            while self._next <= item:
                self._last = next(self._items)
                self._next += 1
                if item - self._prefetch < self._next <= item:
                    # the next one may be made in the same memory
                    self._passed[self._next - 1] = deepcopy(self._last)
        except StopIteration:
            return _End()
        except BaseException:
            self._items = None
            raise
        while len(self._passed) > self._prefetch:
            del self._passed[min(self._passed)]
        return self._last


class DataFeed(Generic[T]):
    """Loaders, one per process of a mesh, from which ranks are fed.

    The handle is sent in messages, and to constructors of actors.

    The batches, and their order, depend on the loaders alone. Loader ``i`` of ``count`` should make
    every ``count``-th batch of the data, from the same seed each time. Where `procs` have a restart
    strategy, a loader that dies is started again and skips the batches already taken; its ranks
    notice only a pause.

    Args:
        procs: Where the loaders live. Their number must be a multiple of that of the ranks which
            share them.
        make_loader: Is called with a `LoaderInfo` in its process, and returns an iterable of batches,
            such as a ``torch.utils.data.DataLoader``: the same batches in the same order whenever
            it is called.
        prefetch: Batches that each rank has under way or at hand, at least 1.
        name: Of the actors, as failures and logs show it.

    Raises:
        TypeError, ValueError: `procs` is no mesh of processes, `make_loader` can't be called, or
            `prefetch` is out of range.
    """

    def __init__(
        self,
        procs: ProcMesh,
        make_loader: Callable[[LoaderInfo], Iterable[T]],
        *,
        prefetch: int = 2,
        name: str = "loaders",
    ) -> None:
        if not isinstance(procs, ProcMesh):
            raise TypeError(f"procs must be a mesh of processes, got {procs!r}")
        if not callable(make_loader):
            raise TypeError(f"make_loader must be a function of a LoaderInfo, got {make_loader!r}")
        self._prefetch = whole(prefetch, "prefetch")
        self._count = procs.extent.nelements
        self._name = name
        self._loaders = procs.spawn(name, Loader, make_loader, self._count, self._prefetch)

    def iterate(
        self,
        *,
        rank: int,
        world_size: int,
        position: int = 0,
        timeout: float | None = None,
        retries: int = 3,
    ) -> Batches[T]:
        """The batches of one rank.

        Args:
            rank: Of 0 to ``world_size - 1``; it gets every ``world_size``-th batch.
            world_size: How many ranks share the batches: a divisor of the number of loaders.
            position: Batches that all ranks together have taken before: `Batches.position`.
            timeout: Seconds in which a batch must come, each time that it is asked for; None waits
                as long as its loader lives.
            retries: How often a batch is asked for again, when its loader is late, or has died and
                is started again.

        Raises:
            TypeError, ValueError: A number is out of range, or does not fit the others.
        """
        order = Order(self._count, rank, world_size)
        limit = None if timeout is None else seconds(timeout, "timeout", least=0.001)
        again = whole(retries, "retries", least=0)
        flat = self._loaders.flatten("loaders")
        loaders = [flat.slice(loaders=index) for index in range(self._count)]
        calls = [loader.take.options(timeout=limit, retries=again).call_one for loader in loaders]
        return Batches(order, calls, self._prefetch, position)

    def stop(self) -> None:
        """End the loaders; ranks that wait for a batch get an error.

        Raises:
            NotImplementedError: The handle was received in a message; only who made the feed stops
                it.
        """
        self._loaders.stop().get()

    def __repr__(self) -> str:
        return f"<DataFeed {self._name!r} of {self._count} loaders>"


class Batches(Generic[T]):
    """An iterator over the batches of one rank; `DataFeed.iterate` makes it.

    It ends at the first batch that its loader lacks.
    """

    def __init__(
        self,
        order: Order,
        calls: Sequence[Callable[[int], Future[Any]]],
        prefetch: int,
        position: int,
    ) -> None:
        self._order = order
        self._calls = calls
        self._prefetch = prefetch
        self._coming: deque[Future[Any]] = deque()
        self._go_to(position)

    @property
    def position(self) -> int:
        """Position where training goes on: batches that all ranks together have taken.

        It counts up to here once each rank has taken as many as this one.
        """
        return self._position

    def state_dict(self) -> dict[str, int]:
        """The position, to be saved with the model: the same on all ranks in the same step."""
        return {"position": self._position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on at a saved position, of any number of ranks.

        Args:
            state: What `state_dict` returned.

        Raises:
            KeyError, TypeError, ValueError: There is none in it, or no step of so many ranks begins
                there.
        """
        self._go_to(state["position"])

    def _go_to(self, position: int) -> None:
        self._position = self._asked = self._order.checked(position)
        self._ended = False
        self._abandon()

    def _abandon(self) -> None:
        """Cancel all outstanding requests."""
        while self._coming:
            call = self._coming.pop()
            call.cancel()
            when_done(call, _notice)

    def __iter__(self) -> Batches[T]:
        return self

    def __next__(self) -> T:
        while not self._ended and len(self._coming) < self._prefetch:
            self._ask()
        if self._ended:
            raise StopIteration
        coming = self._coming.popleft()
        try:
            found: Any = coming.get()
            if not isinstance(found, _End):
                self._ask()  # before the batch counts: this may fail as well
        except BaseException:
            self._go_to(self._position)  # who asks again gets the same batch, or error
            raise
        if isinstance(found, _End):
            self._ended = True
            self._abandon()
            raise StopIteration
        self._position += self._order.world_size
        batch: T = found
        return batch

    def _ask(self) -> None:
        turn = self._order.turn(self._asked)
        self._coming.append(self._calls[turn.loader](turn.item))
        self._asked += self._order.world_size

    def __repr__(self) -> str:
        return (
            f"<Batches of rank {self._order.rank} of {self._order.world_size}, at position"
            f" {self._position}>"
        )


def _notice(call: Future[Any]) -> None:
    """Note the error of a batch that is not wanted any more, so that it is not warned of."""
    call.exception()
