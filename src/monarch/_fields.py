"""A check of a record's fields against their annotations, for records that other processes send.

The annotations are those that type checkers read: numbers, texts, records in records, collections of
them. Of the rest, ``Any`` and what is imported for type checkers alone, nothing is asked.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Collection, Mapping
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin


def check_fields(record: tuple[Any, ...]) -> None:
    """Look whether each field is what its annotation says.

    Raises:
        TypeError: One is not; the message has its name, what was wanted and what was got.
    """
    for value, (name, wanted) in zip(record, _fields(type(record)).items(), strict=False):
        if not _fits(value, wanted):
            shown = wanted.__name__ if type(wanted) is type else wanted
            raise TypeError(f"{type(record).__name__}.{name} is {shown}, not {reprlib.repr(value)}")


@cache
def _fields(kind: type) -> dict[str, Any]:
    """The annotations of a record, by field."""
    names, found = vars(sys.modules[kind.__module__]), {}
    for name, text in vars(kind).get("__annotations__", {}).items():
        try:
            found[name] = eval(getattr(text, "__forward_arg__", text), names)
        except (NameError, TypeError):  # it is imported for type checkers alone
            found[name] = Any
    return found


@cache
def _parts(wanted: Any) -> tuple[Any, tuple[Any, ...]]:
    kind = get_origin(wanted) or wanted
    return (int, float) if kind is float else kind, get_args(wanted)


def _fits(value: Any, wanted: Any) -> bool:
    kind, parts = _parts(wanted)
    if kind in (Union, UnionType):
        return any(_fits(value, each) for each in parts)
    if kind is Any or not isinstance(kind, (type, tuple)):
        return True
    if not isinstance(value, kind):
        return False
    if hasattr(kind, "_fields"):
        parts = (*_fields(kind).values(),)
    elif not parts or not issubclass(kind, Collection):
        return True
    elif issubclass(kind, Mapping):
        return all(_fits(key, parts[0]) and _fits(value[key], parts[1]) for key in value)
    elif not issubclass(kind, tuple) or parts[-1] is ...:
        return all(_fits(each, parts[0]) for each in value)
    return len(value) == len(parts) and all(map(_fits, value, parts))
