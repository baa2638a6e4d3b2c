"""Kinds of functions: ``async def``, and generators."""

from __future__ import annotations

from types import FunctionType

_COROUTINE = 0x80  # of the flags of code, as in `inspect`, which costs 4 ms to import
_GENERATORS = 0x20 | 0x200


def is_async_function(function: object) -> bool:
    """Return whether the function is an ``async def``, or is marked as one."""
    if type(function) is FunctionType and not function.__dict__:
        return bool(function.__code__.co_flags & _COROUTINE)
    import inspect

    return inspect.iscoroutinefunction(function)


def is_generator_function(function: object) -> bool:
    """Return whether the function is a ``def`` or ``async def`` that yields."""
    if type(function) is FunctionType:
        return bool(function.__code__.co_flags & _GENERATORS)
    import inspect

    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)
