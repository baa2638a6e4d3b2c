"""Functions of the script that come again: a receiver has one object for one that did not change.

So `pickle` in an actor finds the function by its name, whichever message has brought it, and
dicts and `is` know it. That holds for functions which are all that they use: constants, modules,
classes, and functions like them. State under a function that may change (a list, a tensor, a global
that is assigned) comes with each message as it is at that moment, and so with a copy.
"""

from __future__ import annotations

import dis
import functools
import sys
import types
import uuid
import weakref
from collections.abc import Callable
from typing import Any

from cloudpickle import cloudpickle

from . import reducers

_CONSTANTS = frozenset({type(None), bool, int, float, complex, str, bytes, type(...)})

_names = weakref.WeakKeyDictionary[types.FunctionType, bytes]()
_by_name = weakref.WeakValueDictionary[tuple[int, bytes], types.FunctionType]()
"""Functions by the table of the actor's classes, as `script.functions`, and by their names."""
_HERE = 0
"""In place of a table, for functions that were made in this process."""


_Own = tuple[bytes, list[types.FunctionType]]


class _MayChange(Exception):
    pass


class Walk:
    """Looks at each function of a message once. The message brings another for its receiver."""

    def __init__(self) -> None:
        self._own: dict[types.FunctionType, _Own | None] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Walk, ()

    def marked(self, function: types.FunctionType) -> tuple[Any, ...] | None:
        """Return the first arguments of `once` for a function of the script; None where it may
        change.
        """
        # else no name leads to it, wherever it is
        is_named = function.__module__ == "__main__" and "." not in function.__qualname__
        made_of = self.made_of(function) if is_named else None
        if made_of is None:
            return None
        if function not in _names:
            _by_name[_HERE, _names.setdefault(function, uuid.uuid4().bytes)] = function
        return self, _names[function], made_of

    def made_of(self, function: types.FunctionType) -> bytes | None:
        """Return a digest of a function and all that it calls; None where they may change."""
        # brings OpenSSL, 2 ms in every process; few functions pass here
        from hashlib import blake2b

        places, reached, said = {function: 0}, [function], blake2b(digest_size=16)
        for each in reached:  # which grows
            if each not in self._own:
                self._own[each] = _own(each)
            if (own := self._own[each]) is None:
                return None
            parts, calls = own
            said.update(parts)
            for call in calls:
                if call not in places:
                    places[call] = len(reached)
                    reached.append(call)
                said.update(b"%d " % places[call])
        return said.digest()


def once(
    walk: Walk, name: bytes, made_of: bytes, make: Callable[..., types.FunctionType], *args: Any
) -> types.FunctionType:
    """Runs in the receiver: the function that is from here, or has come before, or a new one.

    Args:
        walk: Of the message.
        name: Which function it is.
        made_of: What it and those that it calls are made of.
        make: Makes a new one.
        *args: Of `make`.
    """
    receiver = id(reducers.own_classes())
    for place in (_HERE, receiver):
        found = _by_name.get((place, name))
        if found is not None and walk.made_of(found) == made_of:
            return found
    function = _by_name[receiver, name] = make(*args)
    _names[function] = name
    return function


def _own(function: types.FunctionType) -> _Own | None:
    """Describe a function by itself, and return those that it calls; None where it may change."""
    code, used, calls = function.__code__, function.__globals__, list[types.FunctionType]()
    names = [name for name in cloudpickle._extract_code_globals(code) if name in used]
    parts = (
        tuple((name, used[name]) for name in names),
        tuple(map(cloudpickle._get_cell_contents, function.__closure__ or ())),
        tuple((function.__kwdefaults__ or {}).items()),
        tuple(vars(function).items()),
        function.__defaults__,
    )
    try:
        said = repr(_described(parts, calls))
    except _MayChange:
        return None
    return None if _assigns_globals(code) else (code.co_code + said.encode(errors="replace"), calls)


def _described(value: Any, calls: list[types.FunctionType]) -> Any:
    kind = type(value)
    if kind in _CONSTANTS:
        return value
    if kind is tuple:
        return [_described(each, calls) for each in value]
    if kind is types.ModuleType and value.__name__ in sys.modules:
        return kind, value.__name__
    module = getattr(value, "__module__", None)
    if isinstance(value, type):
        named = cloudpickle._should_pickle_by_reference(value)
        return module, value.__qualname__, named or cloudpickle._get_or_create_tracker_id(value)
    if kind is types.FunctionType and not cloudpickle._should_pickle_by_reference(value):
        calls.append(value)
        return kind
    of_module = kind is types.BuiltinFunctionType and type(value.__self__) is types.ModuleType
    if kind is types.FunctionType or of_module:
        return kind, module, value.__qualname__
    raise _MayChange


@functools.lru_cache(1024)
def _assigns_globals(code: types.CodeType) -> bool:
    return any(
        step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
        for part in (code, *inner_code(code))
        for step in dis.get_instructions(part)
    )


def inner_code(code: types.CodeType) -> list[types.CodeType]:
    """Return the code of all functions that are defined inside of one."""
    direct = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return [found for part in direct for found in (part, *inner_code(part))]
