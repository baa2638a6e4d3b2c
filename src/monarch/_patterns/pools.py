"""A function on many procs, and a bound on how much of it is under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from queue import Empty, Queue
from typing import Any, Generic, TypeVar

from .._arguments import whole
from .._core.actors.actor import Actor
from .._core.actors.endpoint import endpoint
from .._core.calls.future import Future
from .._core.calls.pending import subscribe
from .._core.mesh.proc_mesh import ProcMesh

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2  # how many times as many items as run may have been answered and not yet taken


class _Runner(Actor):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        self._function = function

    @endpoint
    def run(self, item: Any) -> Any:
        return self._function(item)


class Pool(Generic[T, R]):
    """Made by `pool`. A context manager, which stops the actors."""

    def __init__(self, procs: ProcMesh, function: Callable[[T], R], in_flight: int) -> None:
        self._actors = procs.spawn(
            f"pool of {getattr(function, '__name__', 'functions')}", _Runner, function
        )
        flat = self._actors.flatten("rank")
        self._ranks = [flat.slice(rank=rank) for rank in range(len(flat))]
        self._in_flight = in_flight

    def map(self, items: Iterable[T]) -> Iterator[R]:
        """The results, in the order of the items, which are asked for as there is room.

        Each goes to the rank with least to do.

        An error of the function is raised at its place, and ends the iteration; items that have not
        begun are then dropped, as they are when the iterator is closed.
        """
        source = iter(items)
        busy = [0] * len(self._ranks)
        ended: Queue[int] = Queue()
        futures: deque[Future[R]] = deque()
        more = True
        try:
            while True:
                while (
                    more
                    and min(busy) < self._in_flight
                    and len(futures) < _AHEAD * self._in_flight * len(busy)
                ):
                    try:
                        item = next(source)
                    except StopIteration:
                        more = False
                        break
                    rank = busy.index(min(busy))
                    future = self._ranks[rank].run.call_one(item)
                    busy[rank] += 1
                    futures.append(future)
                    subscribe(future, partial(ended.put, rank))
                if not futures and not more:
                    return
                if futures and futures[0].done():
                    yield futures.popleft().get()
                else:
                    # each future ends: with an answer, or because its rank is gone; one may be taken
                    # just before its end is noted here
                    busy[ended.get()] -= 1
                with suppress(Empty):
                    while True:
                        busy[ended.get_nowait()] -= 1
        finally:
            for future in futures:
                future.cancel()

    def stop(self) -> Future[None]:
        """Stop the actors; the procs go on."""
        return self._actors.stop()

    def __enter__(self) -> Pool[T, R]:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop().get()


def pool(procs: ProcMesh, function: Callable[[T], R], *, in_flight: int = 2) -> Pool[T, R]:
    """Make actors that run a function, one on each proc.

    Use: ``for result in pool(procs, square).map(range(1000)): ...``.

    Args:
        procs: Where it runs.
        function: Takes one item; a plain function.
        in_flight: How many items each rank has at most that are not answered. One of them runs; the
            others wait there, so that it need not.

    Returns:
        The pool; its `map` yields the results.

    Raises:
        TypeError: `function` is no plain function, or `in_flight` no int.
        ValueError: `in_flight` is less than 1.
    """
    import inspect

    if not callable(function) or inspect.iscoroutinefunction(function):
        raise TypeError(f"pool takes a plain function of one item, got {function!r}")
    return Pool(procs, function, whole(in_flight, "in_flight"))
