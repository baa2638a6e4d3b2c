"""How objects of the standard library travel that `pickle` refuses, or names where it should not.

A script's class holds them where a method is decorated, by `functools.singledispatch` for one.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from .._core.wire.picklers import is_importable


def _reduce_cached(function: Any) -> Any:
    """Reduce what `functools.lru_cache` has made; over there it begins with an empty cache."""
    if is_importable(function):
        return NotImplemented
    attributes = {k: v for k, v in vars(function).items() if k != "cache_parameters"}
    return _cache_anew, (function.__wrapped__, function.cache_parameters()), attributes


def _cache_anew(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _reduce_property(made: functools.cached_property[Any]) -> Any:
    """Reduce a `cached_property`, which holds a lock before Python 3.12."""
    return functools.cached_property, (made.func,), {"attrname": made.attrname}


Reducers = dict[type, Callable[[Any], Any]]

OF_FUNCTOOLS: Reducers = {
    functools._lru_cache_wrapper: _reduce_cached,
    functools.cached_property: _reduce_property,
}
OF_WEAKREF: Reducers = {
    weakref.WeakKeyDictionary: lambda held: (weakref.WeakKeyDictionary, (dict(held),))
}
