"""What packages have taught the picklers about their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Reducer = Callable[[Any], Any]
_reducers: dict[type, Reducer] = {}
_lazy_reducers: dict[str, Callable[[], dict[type, Reducer]]] = {}


def register_reducers(package: str, load: Callable[[], dict[type, Reducer]]) -> None:
    """Teach the picklers about a package's types, when one of them first turns up.

    Args:
        package: Top-level package name, for example ``"torch"``.
        load: Returns ``{type: reducer}``; a reducer returns what ``__reduce__`` would. Called until it has returned once;
            by several threads at the same time where they need it at the same time.
    """
    _lazy_reducers[package] = load


def reduce_extension(kind: type, obj: Any) -> Any:
    """What the reducer of its package makes of `obj`, an instance of `kind`; NotImplemented if there is none."""
    reducer = _reducers.get(kind)
    if reducer is not None:
        return reducer(obj)
    if _lazy_reducers:
        package = kind.__module__.partition(".")[0]
        load = _lazy_reducers.get(package)
        if load is not None:
            _reducers.update(load())
            _lazy_reducers.pop(package, None)  # only now: until then, other threads must not take the default
            return reduce_extension(kind, obj)
    return NotImplemented
