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
def _parts(wanted: Any) -> tuple[Any, Any]:
    """The class that an annotation names, and those of what is in it."""
    kind = get_origin(wanted) or wanted
    if kind is float:
        return (int, float), ()
    is_class = isinstance(kind, type) and kind is not Any
    return (kind, get_args(wanted)) if is_class or kind is Union else (object, ())


def _fits(value: Any, wanted: Any) -> bool:
    kind, parts = _parts(wanted)
    if kind in (Union, UnionType):
        return any(_fits(value, each) for each in parts)
    is_one: bool = isinstance(value, kind)
    if is_one and hasattr(kind, "_fields"):
        parts = _fields(kind).values()
    elif not is_one or not parts or not issubclass(kind, Collection):
        return is_one
    elif issubclass(kind, Mapping):
        return all(_fits(key, parts[0]) and _fits(value[key], parts[1]) for key in value)
    elif not issubclass(kind, tuple) or parts[-1] is ...:
        return all(_fits(each, parts[0]) for each in value)
    return len(value) == len(parts) and all(map(_fits, value, parts))
