"""The reducers that packages have registered with the picklers for their types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .address import ProcAddress

Reducer = Callable[[Any], Any]
Dumped = tuple[bytes, Sequence[memoryview]]
"""A pickle, and its out-of-band buffers."""


class OnlyLentError(TypeError):
    """Raised for a value that is only lent to who gets a message: see `register_lender`."""


NOT_TWICE = (
    "tensors and groups of a device mesh are lent for one message, which can't be sent again. Leave"
    " `retries` out"
)

Lender = Callable[[Callable[[], Dumped], Sequence[ProcAddress], int], Dumped]
lender: Lender | None = None
"""Pickles messages that may hold what stays where it is: see `register_lender`."""

# replaced where actors run
own_classes: Callable[[], dict[str, type] | None] = lambda: None  # noqa: E731
"""The classes that came by value to the actor that runs, by their ids; None where none runs."""

_reducers: dict[type, Reducer] = {}
_lazy_reducers: dict[str, Callable[[], dict[type, Reducer]]] = {}


def register_reducers(package: str, load: Callable[[], dict[type, Reducer]]) -> None:
    """Teach the picklers about a package's types, when one of them first turns up.

    Args:
        package: Top-level package name, for example ``"torch"``.
        load: Returns ``{type: reducer}``; a reducer returns what ``__reduce__`` would. Called until
            it has returned once; by several threads at the same time where they need it at the same
            time.
    """
    _lazy_reducers[package] = load


def register_lender(lend: Lender) -> None:
    """Have values lent to actors that can't be copied into messages.

    Args:
        lend: Called with what pickles a message, the procs that it goes to, and the actor there;
            returns what to send. Raises ValueError if the values do not live there.
    """
    global lender
    lender = lend


def reduce_extension(kind: type, obj: Any) -> Any:
    """Reduce `obj`, of type `kind`, by its package's reducer; NotImplemented without one."""
    reducer = _reducers.get(kind)
    if reducer is not None:
        return reducer(obj)
    if _lazy_reducers:
        package = kind.__module__.partition(".")[0]
        load = _lazy_reducers.get(package)
        if load is not None:
            _reducers.update(load())
            # only now: until then, other threads must not take the default
            _lazy_reducers.pop(package, None)
            return reduce_extension(kind, obj)
    return NotImplemented
