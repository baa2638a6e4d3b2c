"""Batches: callers pass single items, the method gets lists of them."""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from .._arguments import seconds, whole
from ..actor import Endpoint, concurrent_endpoint

_Method = Callable[..., Coroutine[Any, Any, Sequence[Any]]]
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R")


class _Batched(Protocol[T_contra, R]):
    """A batched endpoint, as type checkers see it on the class: one of single items."""

    def __get__(self, instance: Any, owner: type | None = None) -> Endpoint[[T_contra], R]: ...


class _Decorator(Protocol):
    def __call__(
        self, method: Callable[[Any, list[T]], Coroutine[Any, Any, Sequence[R | Exception]]], /
    ) -> _Batched[T, R]: ...


class _Item:
    __slots__ = ("answer", "came", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.came = time.monotonic()
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class _Batches:
    """The items of one method of one actor.

    What ends the wait of an item: its batch, or the end of the actor.
    """

    def __init__(self, handle: _Method, size: int, wait: float) -> None:
        self._handle = handle
        self._size = size
        self._wait = wait
        self._items: deque[_Item] = deque()
        self._full = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def add(self, value: Any) -> Any:
        item = _Item(value)
        self._items.append(item)
        if len(self._items) >= self._size:
            self._full.set()
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        result = await item.answer
        if isinstance(result, Exception):
            raise result
        return result

    async def _work(self) -> None:
        """One batch after the other; what comes meanwhile is in the next."""
        try:
            while self._items:
                patience = self._items[0].came + self._wait - time.monotonic()
                if len(self._items) < self._size and patience > 0:
                    self._full.clear()
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._full.wait(), patience)
                await self._run(
                    [self._items.popleft() for _ in range(min(self._size, len(self._items)))]
                )
        finally:
            self._worker = None
            while self._items:  # this ends before them
                self._items.popleft().answer.cancel()

    async def _run(self, batch: Sequence[_Item]) -> None:
        results: Sequence[Any]
        try:
            results = await self._handle([item.value for item in batch])
            if not isinstance(results, Sequence) or len(results) != len(batch):
                got = f"a {type(results).__name__}"
                if isinstance(results, Sequence):
                    got = str(len(results))
                raise TypeError(
                    f"a batch of {len(batch)} items has as many results, in a list; got {got}"
                )
        except Exception as error:
            results = [error] * len(batch)
        except BaseException:  # the actor ends, or this task was cancelled
            for item in batch:
                item.answer.cancel()
            raise
        for item, result in zip(batch, results, strict=True):
            if not item.answer.done():  # its wait was cancelled
                item.answer.set_result(result)


def batched(*, max_size: int, max_wait: float = 0.0) -> _Decorator:
    """Mark an ``async def`` method of an actor as an endpoint that handles items in batches.

    Callers pass one item and get its result; the method gets a list of items and returns a list of
    as many results, in their order. A result that is an exception is raised for its item; what the
    method raises, for all of the batch. One batch runs at a time, and the items that come meanwhile
    are in the next.

    Args:
        max_size: Items in a batch, at most.
        max_wait: Seconds that an item waits for others, where a batch could begin. 0: a batch has
            the items that are already waiting.

    Returns:
        The decorator.

    Raises:
        TypeError: `max_size` is no int; the method is not ``async def``, or does not take one list.
        ValueError: `max_size` is less than 1; `max_wait` is no number of seconds, or negative.
    """
    whole(max_size, "max_size")
    seconds(max_wait, "max_wait")

    def decorate(method: _Method) -> Any:
        name = getattr(method, "__name__", repr(method))
        if not inspect.iscoroutinefunction(method):
            raise TypeError(f"batched is for async methods; write `async def {name}`")
        if len(inspect.signature(method).parameters) != 2:
            raise TypeError(f"a batched method takes one list, `async def {name}(self, items)`")
        attribute = f"_batches_of_{name}"

        @functools.wraps(method)
        async def collect(self: Any, item: Any) -> Any:
            batches = getattr(self, attribute, None)
            if batches is None:
                batches = _Batches(functools.partial(method, self), max_size, max_wait)
                setattr(self, attribute, batches)
            return await batches.add(item)

        collect.batches = max_size  # type: ignore[attr-defined]  # the mark
        return concurrent_endpoint(collect)

    return decorate
