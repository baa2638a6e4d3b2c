"""The answers of a `stream`, as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from .request import StreamFuture

R = TypeVar("R")


class Answers(Generic[R]):
    """An iterator of futures, in the order in which the answers arrive. ``async for`` gives the same futures, each when it is done.

    As `asyncio.as_completed` does, it raises no error of an answer: that is the future's, which also knows the rank.
    """

    __slots__ = ("_futures",)

    def __init__(self, futures: Iterable[StreamFuture[R]]) -> None:
        self._futures = deque(futures)

    def __iter__(self) -> Answers[R]:
        return self

    def __next__(self) -> StreamFuture[R]:
        if not self._futures:
            raise StopIteration
        return self._futures.popleft()

    def __aiter__(self) -> Answers[R]:
        return self

    async def __anext__(self) -> StreamFuture[R]:
        if not self._futures:
            raise StopAsyncIteration
        if not self._futures[0].done():
            await self._futures[0]._wait_in_loop()
        return self._futures.popleft()

    def __length_hint__(self) -> int:
        return len(self._futures)
