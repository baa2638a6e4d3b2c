"""The search for the part that makes a value unpicklable, for the text of an error.

Callers whose `pickle` has just failed: arguments of a call, results and exceptions of an endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import FunctionType
from typing import Any

from ..wire import pickling


def find_unsendable(value: Any) -> tuple[str, Any]:
    """Find the innermost part that cannot be pickled.

    Returns how Python would reach it from `value`, and the part itself.

    Args:
        value: What has just failed to pickle.
    """
    path = ""
    seen = {id(value)}
    # another thread changes it, a key has no text: what was found so far is a hint as well
    with suppress(Exception):
        while (found := _unsendable_part(value, seen)) is not None:
            step, value = found
            path += step
            seen.add(id(value))
    return path, value


def _unsendable_part(value: Any, seen: set[int]) -> tuple[str, Any] | None:
    for step, part in _parts(value):
        if id(part) not in seen and not can_be_sent(part):
            return step, part
    return None


def can_be_sent(value: Any) -> bool:
    """Return whether a value pickles."""
    try:
        pickling.dumps_inline(value)
    except Exception:
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the parts of a value that pickle visits, where its type leaves no doubt."""
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
        yield from ((f".keys() -> {key!r}", key) for key in value)
    elif isinstance(value, (list, tuple)):
        yield from ((f"[{index}]", part) for index, part in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield from ((f" -> {part!r}", part) for part in value)
    elif isinstance(value, FunctionType):
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            yield f" -> {name}", cell.cell_contents
        for name in value.__code__.co_names:
            if name in value.__globals__:
                yield f" -> {name}", value.__globals__[name]
    elif _is_plain(type(value)):
        yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())


def _is_plain(kind: type) -> bool:
    """Return whether pickle writes objects of this class by their attributes alone."""
    own = ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__", "__getnewargs_ex__")
    return not any(name in vars(base) for base in kind.__mro__[:-1] for name in own)
