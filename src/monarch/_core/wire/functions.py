"""Functions of the script that come again: a receiver has one object for one that did not change.

So `pickle` in an actor finds the function by its name, whichever message has brought it, and
dicts and `is` know it. That holds for functions which are all that they use: constants, modules,
classes, and functions like them. What may change under a function (a list, a tensor, a global
that is assigned) comes with each message as it is at that moment, and so with a copy.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from cloudpickle import cloudpickle

from . import reducers

_CONSTANTS = frozenset({type(None), bool, int, float, complex, str, bytes, type(...)})

Mark = tuple[bytes, bytes]
"""Which function it is, and what it and those that it calls are made of."""

_names: weakref.WeakKeyDictionary[types.FunctionType, bytes] = weakref.WeakKeyDictionary()
_by_name: weakref.WeakValueDictionary[tuple[int, bytes], types.FunctionType] = (
    weakref.WeakValueDictionary()
)
"""Functions by the table of the actor's classes, as `script.functions`, and by their names."""
_HERE = 0
"""In place of a table, for functions that were made in this process."""


class _MayChange(Exception):
    pass


def mark(function: types.FunctionType) -> Mark | None:
    """Return what tells a function of the script from others; None where it may change."""
    if function.__module__ != "__main__" or "." in function.__qualname__:
        return None  # no name leads to it, wherever it is
    made_of = _made_of(function)
    if made_of is None:
        return None
    if function not in _names:
        _by_name[_HERE, _names.setdefault(function, uuid.uuid4().bytes)] = function
    return _names[function], made_of


def once(marked: Mark, make: Callable[..., types.FunctionType], *args: Any) -> types.FunctionType:
    """Runs in the receiver: the function that is from here, or has come before, or a new one."""
    name, made_of = marked
    receiver = id(reducers.own_classes())
    for place in (_HERE, receiver):
        found = _by_name.get((place, name))
        if found is not None and _made_of(found) == made_of:
            return found
    function = _by_name[receiver, name] = make(*args)
    _names[function] = name
    return function


def _made_of(function: types.FunctionType) -> bytes | None:
    from hashlib import blake2b  # brings OpenSSL, 2 ms in every process; few functions pass here

    reached = [function]
    said = blake2b(digest_size=16)
    try:
        for each in reached:  # which grows
            said.update(each.__code__.co_code)
            for part in _parts(each):
                said.update(repr(_described(part, reached)).encode(errors="replace"))
    except _MayChange:
        return None
    return said.digest()


def _parts(function: types.FunctionType) -> Iterator[Any]:
    code = function.__code__
    if _assigns_globals(code):
        raise _MayChange
    used = function.__globals__
    yield tuple(sorted(name for name in cloudpickle._extract_code_globals(code) if name in used))
    yield from (used[name] for name in cloudpickle._extract_code_globals(code) if name in used)
    yield from map(cloudpickle._get_cell_contents, function.__closure__ or ())
    for more in (function.__kwdefaults__ or {}, vars(function)):
        yield tuple(more)
        yield from more.values()
    yield function.__defaults__


def _described(value: Any, reached: list[types.FunctionType]) -> Any:
    kind = type(value)
    if kind in _CONSTANTS:
        return value
    if kind is tuple:
        return [_described(each, reached) for each in value]
    if kind is types.ModuleType and value.__name__ in sys.modules:
        return kind, value.__name__
    module = getattr(value, "__module__", None)
    if isinstance(value, type):
        named = cloudpickle._should_pickle_by_reference(value)
        return module, value.__qualname__, named or cloudpickle._get_or_create_tracker_id(value)
    if kind is types.BuiltinFunctionType and type(value.__self__) is types.ModuleType:
        return kind, module, value.__qualname__
    if kind is types.FunctionType:
        if cloudpickle._should_pickle_by_reference(value):
            return kind, module, value.__qualname__
        if not any(each is value for each in reached):
            reached.append(value)
        return kind, next(at for at, each in enumerate(reached) if each is value)
    raise _MayChange


@functools.lru_cache(1024)
def _assigns_globals(code: types.CodeType) -> bool:
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return any(map(_assigns_globals, inner)) or any(
        step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for step in dis.get_instructions(code)
    )
