"""The answers of a `stream`, as they come, and of a `call` that its reader has given up.

Of the latter, those that had come by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from ..calls import future as futures
from ..calls.failed_call import ByRank
from ..calls.rebuild import read_value
from ..calls.waiting import wait_in_loop
from ..shape import Extent, Point
from ..wire.frame import Frame

if TYPE_CHECKING:
    from .request import RankFuture

R = TypeVar("R")


class Answers(Generic[R]):
    """An iterator of futures, in the order in which the answers arrive.

    ``async for`` gives the same futures, each when it is done.

    As `asyncio.as_completed` does, it raises no error of an answer: that is the future's, which
    also knows the rank.
    """

    __slots__ = ("_futures",)

    def __init__(self, futures: Iterable[RankFuture[R]]) -> None:
        self._futures = deque(futures)

    def __iter__(self) -> Answers[R]:
        return self

    def __next__(self) -> RankFuture[R]:
        if not self._futures:
            raise StopIteration
        return self._futures.popleft()

    def __aiter__(self) -> Answers[R]:
        return self

    async def __anext__(self) -> RankFuture[R]:
        if not self._futures:
            raise StopAsyncIteration
        if not self._futures[0].done():
            await wait_in_loop(self._futures[0])
        if futures.pending_output is not None:  # as where the future itself is awaited
            await futures.pending_output.wait_in_loop()
        return self._futures.popleft()

    def __length_hint__(self) -> int:
        return len(self._futures)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            do = "write `for future in mesh.endpoint.stream(...): future.get()`"
            raise AttributeError(f"a stream gives futures and has no attribute {name!r}: {do}")


class AnswersByRank(ByRank[Any]):
    """A mapping of ranks to their answers, each unpickled on first access."""

    def __init__(self, extent: Extent, frames: Mapping[int, Frame]) -> None:
        self._extent = extent
        self._frames = frames
        self._values: dict[int, Any] = {}

    def __getitem__(self, point: Point) -> Any:
        rank = point.rank
        if rank not in self._frames or point != Point(rank, self._extent):
            raise KeyError(point)
        if rank not in self._values:
            # `setdefault`: of two threads that read it at once, both get one object
            self._values.setdefault(rank, read_value(self._frames[rank]))
        return self._values[rank]

    def __iter__(self) -> Iterator[Point]:
        return (Point(rank, self._extent) for rank in self._frames)

    def __len__(self) -> int:
        return len(self._frames)
