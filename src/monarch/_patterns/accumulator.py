"""The fold of the answers of a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, ParamSpec, TypeVar

from .._core.actors.adverbs import Endpoint
from .._core.calls.future import Future
from .returns_future import returns_future

P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")


class Accumulator(Generic[P, R, A]):
    """Calls an endpoint on every rank and folds the answers together as they arrive.

    Args:
        endpoint: ``mesh.method``.
        identity: The value to start from.
        combine: ``combine(accumulated, value) -> accumulated``.
    """

    def __init__(self, endpoint: Endpoint[P, R], identity: A, combine: Callable[[A, R], A]) -> None:
        self._endpoint = endpoint
        self._identity = identity
        self._combine = combine

    def accumulate(self, *args: P.args, **kwargs: P.kwargs) -> Future[A]:
        """Call now; a future of the fold, which fails with the first answer that fails.

        Args:
            *args: Arguments of the endpoint.
            **kwargs: As `args`.
        """
        return _fold(self._identity, self._combine, self._endpoint.stream(*args, **kwargs))

    def __repr__(self) -> str:
        return f"Accumulator({self._endpoint!r}, identity={self._identity!r})"


@returns_future
async def _fold(
    accumulated: A, combine: Callable[[A, Any], A], answers: Iterator[Future[Any]]
) -> A:
    for answer in answers:
        accumulated = combine(accumulated, await answer)
    return accumulated
