"""Replace an actor class by another wherever it is spawned, for tests."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from .._core.calls.function_kinds import is_async_function
from .._core.mesh import mock

F = TypeVar("F", bound=Callable[..., Any])


def tensor_engine_factory(cls: type) -> Callable[..., Any] | None:
    """Return the factory that replaces the tensor engines of actors of a class.

    None if that is not patched.
    """
    return getattr(mock.resolve(cls), "_tensor_engine_factory", None)


class patch_actor:  # noqa: N801  # used as a function, like unittest.mock.patch
    """A context in which ``spawn(name, original, ...)`` creates `mock` instead.

    Here, and in procs that are spawned meanwhile.

    A context manager, sync and async, and a decorator of functions, sync and async. Patches nest;
    the inner one wins.

    Args:
        original: The actor class to replace.
        mock: The class that is spawned in its place, with the same name and arguments.

    Raises:
        TypeError: One of them is no class.
    """

    def __init__(self, original: type, mock: type) -> None:
        for cls in (original, mock):
            if not isinstance(cls, type):
                raise TypeError(f"patch_actor takes two actor classes, got {cls!r}")
        self._original = original
        self._mock = mock

    def __enter__(self) -> Any:
        mock.install([(self._original, self._mock)])
        return self._mock

    def __exit__(self, *exc: object) -> None:
        mock.patches()[self._original].remove(self._mock)

    async def __aenter__(self) -> Any:
        return self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__()

    def __call__(self, function: F) -> F:
        if is_async_function(function):

            @functools.wraps(function)
            async def call_async(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return call_async  # type: ignore[return-value]  # the same signature

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]  # the same signature
