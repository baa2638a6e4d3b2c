"""The picklers of `pickling`, for all but builtin scalars.

A class that travels by value is set up once per receiving actor: with the globals of the moment in
which it first came there, beside those that other actors of the process have, and for as long as
that actor lives. cloudpickle alone would have one for the whole process, and apply it again at each
arrival: to reset class attributes and globals under the actors that already run, or to run old code
in those that are spawned after it was fixed. An actor sees one class all the same: all that it
unpickles is of its own. A thread that belongs to no actor, such as one that a C library has
started, has the first copy of the process.
"""

from __future__ import annotations

import _collections_abc
import builtins
import copyreg
import functools
import io
import linecache
import os
import pickle
import sys
import types
import typing
import weakref
from collections import ChainMap
from collections.abc import Callable
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as _cloudpickle

from . import functions, reducers, script
from .reducers import reduce_extension

# pickle knows them, `builtins` does not name them
_UNNAMED = frozenset({type(None), type(...), type(NotImplemented)})
_ONLY_CLOUDPICKLE = frozenset({types.FunctionType, *cloudpickle.Pickler.dispatch_table.maps[0]})
"""Types of which pickle can send only objects with an importable name, or none at all: modules,
views of dicts, ...
"""
_HIDDEN_TYPES = {
    found: name
    for name, found in vars(_collections_abc).items()
    if isinstance(found, type)
    and found.__module__ == "builtins"
    and not hasattr(builtins, found.__name__)
}
"""Builtin types that have a name only there, such as that of the keys of a dict."""


def dump(
    obj: Any, in_band: Callable[[pickle.PickleBuffer], bool] | None, again: Callable[[], None]
) -> bytes:
    """Pickle `obj`.

    Args:
        in_band: Whether a buffer is to be part of the pickle; None for all.
        again: Called where what `in_band` was asked so far is void, as the object must travel by
            value.
    """
    stream = io.BytesIO()
    try:
        _Pickler(stream, protocol=5, buffer_callback=in_band).dump(obj)
        return stream.getvalue()
    except _ByValue:
        again()
    # outside, so that errors do not show the first attempt
    for mentions in (True, False):
        stream = io.BytesIO()
        pickler = _ValuePickler(stream, protocol=5, buffer_callback=in_band)
        pickler.mentions, pickler.walk = mentions, functions.Walk()
        try:
            pickler.dump(obj)
            break
        except Exception:
            if not pickler.mentioned:
                raise
            again()
    return stream.getvalue()


class _ByValue(Exception):
    """Something in here cannot be named by a module and a name."""


class _Pickler(pickle.Pickler):
    """Plain pickle that notices what would not be importable by the receiver."""

    def reducer_override(self, obj: Any) -> Any:
        kind = type(obj)
        if kind in _ONLY_CLOUDPICKLE:
            if kind is not types.FunctionType or not is_importable(obj):
                raise _ByValue
            return NotImplemented
        if isinstance(obj, type):
            if not is_importable(obj):
                raise _ByValue
            return NotImplemented
        return reduce_extension(kind, obj)


def _reduce_code(code: types.CodeType) -> tuple[Any, ...]:
    """Reduce a code object together with the name of its file.

    cloudpickle 3.1.3 and later write "<dynamic-code>" in its place, so that equal code has equal
    bytes wherever it is defined. Tracebacks, breakpoints and stacks of ranks need the real name.
    """
    make, arguments = _cloudpickle._code_reduce(code)
    arguments = (*arguments[:_FILENAME], code.co_filename, *arguments[_FILENAME + 1 :])
    lines = _lines_without_file(code.co_filename)
    return (_make_code, (lines, *arguments)) if lines else (make, arguments)


@functools.lru_cache
def _lines_without_file(name: str) -> list[str]:
    """Return the source of a cell, or of a file in an archive, which no receiver could read."""
    if os.path.exists(name):
        return []
    names = reducers.script_names()
    return linecache.getlines(name, names if names.get("__file__") == name else None)


def _make_code(lines: list[str], *arguments: Any) -> types.CodeType:
    name = arguments[_FILENAME]
    linecache.cache.setdefault(name, (sum(map(len, lines)), None, lines, name))
    return types.CodeType(*arguments)


_FILENAME = 10
"""Where `types.CodeType` takes the name of the file, on Python 3.8 and later."""


class _ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is untyped
    """cloudpickle, with classes that are set up once per receiver."""

    dispatch_table = ChainMap({types.CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table)
    mentions = True
    """Whether to send what classes of the script only mention in annotations, too."""
    mentioned = False
    """Whether there was any."""
    walk: functions.Walk

    def reducer_override(self, obj: Any) -> Any:
        reduced = reduce_extension(type(obj), obj)
        if reduced is not NotImplemented:
            return reduced
        reduced = super().reducer_override(obj)
        if type(obj) is types.FunctionType and reduced is not NotImplemented:
            _note_submodules(obj, reduced[2][1])
            make, described, state, *rest = reduced[:5]
            if marked := self.walk.marked(obj):
                make, described = functions.once, (*marked, make, *described)
            return make, described, (*state, self._hints(obj)), *rest, _set_function
        if (
            type(reduced) is tuple
            and len(reduced) == 6
            and reduced[5] is _cloudpickle._class_setstate
        ):
            if obj in _HIDDEN_TYPES:
                return _hidden_type, (_HIDDEN_TYPES[obj],)
            _applied.add(obj)  # here it is complete already; it may come back
            make, described, (attributes, _), *rest = reduced
            if make is _cloudpickle._make_skeleton_class:
                described[3]["__qualname__"] = obj.__qualname__
                # only now: they can't be added later. A `NamedTuple` sets its own
                if "__slots__" in vars(obj) and typing.NamedTuple not in described[2]:
                    described[3]["__slots__"] = obj.__slots__
            state = attributes, self._of_script(obj)
            return (_make_class_once, (make, *described), state, *rest[:2], _set_class_once)
        return reduced

    def _hints(self, function: types.FunctionType) -> dict[str, tuple[str, Any]]:
        """Return what annotations of a function of the script name, each with its module."""
        home = function.__globals__ if function.__module__ == "__main__" and self.mentions else {}
        hints = {
            name: (_home_of(home[name]), _elsewhere(home[name]))
            for name in script.named_in(function.__annotations__) & home.keys()
        }
        self.mentioned |= bool(hints)
        return hints

    def _of_script(self, cls: type) -> dict[str, Any]:
        """Return a class's place in the script's module, and how `copyreg` pickles its objects."""
        more: dict[str, Any] = {}
        if cls in copyreg.dispatch_table:
            more["reduce"] = copyreg.dispatch_table[cls]
        home = script.globals_of(cls) if cls.__module__ == "__main__" else None
        if home is not None:
            mentioned = script.mentioned(cls, home)
            if not self.mentions:
                mentioned = {name: value for name, value in mentioned.items() if value is cls}
            self.mentioned |= self.mentions and bool(mentioned)
            # the very dict that its functions get, which cloudpickle begins in the same way
            given = self.globals_ref.setdefault(id(home), {})
            given.update((name, home[name]) for name in _OF_MODULE if name in home)
            more["home"] = given
            more["mentioned"] = {name: _elsewhere(value) for name, value in mentioned.items()}
        return more


_OF_MODULE = ("__package__", "__name__", "__path__", "__file__")


def _home_of(value: Any) -> str:
    """Return the module to import for a module or class; that of the script for what travels."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    return value.__module__ if isinstance(value, type) and is_importable(value) else "__main__"


def _elsewhere(value: Any) -> Any:
    """Send objects with a name as bytes: an object that a class only mentions is not imported on
    arrival.
    """
    return value if _home_of(value) == "__main__" else dump(value, None, lambda: None)


def _note_submodules(function: types.FunctionType, slots: dict[str, Any]) -> None:
    """Have the receiver import `urllib.request`, too, where only a function inside of this one uses
    it.

    `import urllib.request` binds no more than `urllib`. cloudpickle finds what else is meant in the
    names of the outer code alone.
    """
    inner = functions.inner_code(function.__code__)
    if inner:
        values = [
            *slots["__globals__"].values(),
            *map(_cloudpickle._get_cell_contents, function.__closure__ or ()),
        ]
        modules = [value for value in values if isinstance(value, types.ModuleType)]
        for code in inner if modules else ():
            slots["_cloudpickle_submodules"] += _cloudpickle._find_imported_submodules(
                code, modules
            )


def is_importable(obj: Any) -> bool:
    """Return whether a class or function can be sent by its name."""
    module = getattr(obj, "__module__", None)
    registered = cloudpickle.list_registry_pickle_by_value()
    if module is None or module == "__main__" or (registered and _covers(registered, module)):
        return False
    found: Any = sys.modules.get(module)
    try:
        found = functools.reduce(getattr, obj.__qualname__.split("."), found)
    except AttributeError:
        return obj in _UNNAMED
    return found is obj


def _covers(packages: set[str], module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in packages)


def _hidden_type(name: str) -> Any:
    return vars(_collections_abc)[name]


_applied: weakref.WeakSet[type] = weakref.WeakSet()
_received: weakref.WeakSet[type] = weakref.WeakSet()
"""Classes that are from elsewhere.

The copies in all actors have one id, the one of the origin, also when they are sent on.
"""


def _make_class_once(make: Callable[..., type], *args: Any) -> type:
    """Runs in the receiver: the class that its actor has got under this id before, or a new one;
    the class itself if it is from here.
    """
    *described, tracker_id, extra = args
    known: type | None = _cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker_id)
    if known is not None and known not in _received:
        return known
    own = reducers.own_classes()
    cls = known if own is None else own.get(tracker_id)
    return _as_tracked(tracker_id, make(*described, None, extra)) if cls is None else cls


def _as_tracked(tracker_id: str | None, cls: Any) -> Any:
    """The class that the actor has under an id, this one if it has none.

    In place of what cloudpickle does when bytes are loaded that it has made without us: so that
    they, too, have the class of the actor, and not of the first one in the process.
    """
    if tracker_id is None or not isinstance(cls, type):
        return _track(tracker_id, cls)
    own = reducers.own_classes()
    with _cloudpickle._DYNAMIC_CLASS_TRACKER_LOCK:
        known: type | None = _cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(tracker_id)
        if known is not None and known not in _received:  # it is from here
            return known
        if own is not None:
            cls = own.setdefault(tracker_id, cls)
        first = _cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.setdefault(tracker_id, cls)
        cls = first if own is None else cls
        _cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS[cls] = tracker_id
        _received.add(cls)
    return cls


_track = _cloudpickle._lookup_class_or_track
_cloudpickle._lookup_class_or_track = _as_tracked


def _set_class_once(cls: type, state: Any) -> type:
    """Runs in the receiver: fill a class that came by value, unless an earlier message did."""
    if cls not in _applied:
        _cloudpickle._class_setstate(cls, state)
        more = state[1]
        if "home" in more:
            script.brought[cls] = more["home"], more["mentioned"]
        if "reduce" in more:
            copyreg.pickle(cls, more["reduce"])
        _applied.add(cls)
    return cls


def _set_function(function: types.FunctionType, state: Any) -> None:
    """Runs in the receiver: fill a function that came by value."""
    *state, hints = state
    _cloudpickle._function_setstate(function, state)
    for name, (module, value) in hints.items():
        if module in sys.modules:  # nothing is imported for it
            function.__globals__.setdefault(name, script.read(value))
    if function.__module__ == "__main__":
        script.functions[id(reducers.own_classes()), function.__qualname__] = function
