"""The reducers that packages have registered with the picklers for their types."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .. import extension

Reducer = Callable[[Any], Any]
Dumped = tuple[bytes, Sequence[memoryview]]
"""A pickle, and its out-of-band buffers."""


class OnlyLentError(TypeError):
    """Raised for a value that is only lent to the receiver of a message: see `extension.lend`."""


NOT_TWICE = (
    "tensors and groups of a device mesh are lent for one message, which can't be sent again. Leave"
    " `retries` out"
)


class Loan:
    """A message with values that are lent for it. It is sent in a ``with``, which gives it.

    Loan and send are one step, so that two threads can't do the one in another order than the
    other: the values would then wait for one message, and its receiver for those of the other.

    Args:
        order: A lock, held meanwhile.
        lend: Makes the loan, when it is first entered; returns what to send.
    """

    def __init__(self, order: Any, lend: Callable[[], Dumped]) -> None:
        self._order = order
        self._lend = functools.cache(lend)

    def __enter__(self) -> Dumped:
        with self._order:
            dumped = self._lend()
            self._order.acquire()
        return dumped

    def __exit__(self, *_: object) -> None:
        self._order.release()


# replaced where actors run
own_classes: Callable[[], dict[str, type] | None] = lambda: None  # noqa: E731
"""The classes that came by value to the actor that runs, by their ids; None where none runs."""

# replaced where the script does not run
script_names: Callable[[], dict[str, Any]] = lambda: vars(sys.modules["__main__"])  # noqa: E731
"""The names of the script, as far as they are known here."""

_reducers: dict[type, Reducer | None] = {}  # None: has none, as was found out before
_loaded: set[str] = set()  # packages with reducers in it


def reduce_extension(kind: type, obj: Any) -> Any:
    """Reduce `obj`, of type `kind`, by its package's reducer; NotImplemented without one."""
    reducer = _reducers.get(kind, _reduce_first)
    return NotImplemented if reducer is None else reducer(obj)


def _reduce_first(obj: Any) -> Any:
    """Reduce an object of a type for which no reducer was noted."""
    kind = type(obj)
    module = kind.__module__
    if module == "__main__":
        return _reduce_held(obj)
    package = module.partition(".")[0]
    if package not in _loaded and (found := extension.reducers.get(package)) is not None:
        _reducers.update(found)
        _loaded.add(package)  # only now: until then, other threads must not take the default
        return reduce_extension(kind, obj)
    home = getattr(sys.modules.get(module), "__dict__", {})
    if home.get(kind.__name__) is not kind or kind is object:
        return _reduce_held(obj)  # not noted: such may be made by the thousand, and be forgotten
    holds = _is_plain(kind) and any(type(value) is kind for value in list(home.values()))
    _reducers[kind] = _reduce_held if holds else None
    return reduce_extension(kind, obj)


def _is_plain(kind: type) -> bool:
    own = {name for base in kind.__mro__[:-1] for name in list(vars(base))}  # threads add to them
    return own.isdisjoint(("__reduce__", "__reduce_ex__")) and not issubclass(kind, type)


def _reduce_held(obj: Any) -> Any:
    """Reduce an object that a module holds under a name, such as `dataclasses.MISSING`, to that.

    Only objects of the module's own types that have no state: they are told by their identity
    alone, which a copy has not. `object` is a type of every module. An object of the script that
    pickles by its name is named to the receiver's script.
    """
    kind = type(obj)
    if getattr(obj, "__dict__", kind.__basicsize__ > object.__basicsize__):
        return NotImplemented
    modules = [kind.__module__]
    if kind is object:  # the script last, which may have it from elsewhere, and goes by two names
        script = sys.modules["__main__"]
        modules = [name for name, found in list(sys.modules.items()) if found is not script]
        modules.append("__main__")
    for module in modules:
        ours = module == "__main__"
        home = script_names() if ours else getattr(sys.modules.get(module), "__dict__", {})
        for name in [name for name, value in list(home.items()) if value is obj]:
            reduced = obj.__reduce_ex__(4)
            bare = _is_plain(kind) and reduced[1] == (kind,) and not any(reduced[2:])
            if bare or (ours and type(reduced) is str):
                return _held, (module, name, kind if ours else None)
    return NotImplemented


def _held(module: str, name: str, kind: Any) -> Any:
    """Runs in the receiver: what the module holds under this name.

    A script that has sent nothing of that name yet gets another object of the kind.
    """
    if kind is None:
        return getattr(importlib.import_module(module), name)
    found = getattr(sys.modules[module], name, None)
    return found if type(found) is kind else kind.__new__(kind)
