"""Objects to bytes and back: pickle protocol 5, large buffers out of band, cloudpickle only where pickle cannot.

Three speeds, tried in order:

1. only builtin scalars in the arguments: `pickle.dumps`, one C call;
2. anything importable: a C pickler whose `reducer_override` looks at what is not builtin;
3. classes and functions of ``__main__``, lambdas, closures: cloudpickle, by value.

A class that travels by value is applied once per receiving process. cloudpickle alone would apply it again at each
arrival, resetting class attributes and globals under the actors that already run there.
"""

from __future__ import annotations

import _collections_abc
import builtins
import functools
import io
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as _cloudpickle

from .address import ProcAddress
from .frame import Bytes

OUT_OF_BAND_SIZE = 64 * 1024
"""Buffers of at least this many bytes stay out of the pickle."""

RAW_SIZE = 2 * 1024 * 1024
"""So do an argument, or a result, that is itself `bytes` or a `bytearray` of this size. Smaller ones are quick enough on the
socket, where they reach a process that has no descriptor left as well."""

_SCALARS = frozenset({int, float, str, bool, type(None), complex})
_RAW = frozenset({bytes, bytearray})
_EMPTY_CALL = pickle.dumps(((), {}), protocol=5)
_UNNAMED = frozenset({type(None), type(...), type(NotImplemented)})  # pickle knows them, `builtins` does not name them
_ONLY_CLOUDPICKLE = frozenset({types.FunctionType, *cloudpickle.Pickler.dispatch_table.maps[0]})
"""Types of which pickle can send only what has an importable name, or nothing at all: modules, views of dicts, ..."""
_HIDDEN_TYPES = {
    found: name
    for name, found in vars(_collections_abc).items()
    if isinstance(found, type) and found.__module__ == "builtins" and not hasattr(builtins, found.__name__)
}
"""Builtin types that have a name only there, such as that of the keys of a dict."""

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


class OnlyLentError(TypeError):
    """Something can't be copied into a message: at most it can be lent to receivers that live where it does.

    Raised by a reducer; who knows the receivers may call `lend`.
    """

    def lend(self, content: Any, procs: Sequence[ProcAddress], actor: int) -> tuple[bytes, Sequence[memoryview]]:
        """What `dumps` gives for `content`, with what is lent, for an actor on these procs that it will be sent to next.

        Raises:
            ValueError: It does not live there.
        """
        raise self


class _ByValue(Exception):
    """Something in here cannot be named by a module and a name."""


def dumps(obj: Any) -> tuple[bytes, Sequence[memoryview]]:
    """Pickle `obj`; returns the pickle and its out-of-band buffers, in order.

    Raises:
        Exception: Whatever the object raises when it is pickled.
    """
    buffers: list[memoryview] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous: pickle must copy it
            return True
        if raw.nbytes < OUT_OF_BAND_SIZE:
            return True
        buffers.append(raw)
        return False

    try:
        return _dump(obj, in_band, _Pickler), buffers
    except _ByValue:
        buffers.clear()
    return _dump(obj, in_band, _ValuePickler), buffers  # outside, so that its errors do not show the first attempt


def dumps_inline(obj: Any) -> bytes:
    """Pickle `obj` with everything in band."""
    try:
        return _dump(obj, None, _Pickler)
    except _ByValue:
        pass
    return _dump(obj, None, _ValuePickler)


def _dump(obj: Any, in_band: Callable[[pickle.PickleBuffer], bool] | None, pickler: type[pickle.Pickler]) -> bytes:
    stream = io.BytesIO()
    pickler(stream, protocol=5, buffer_callback=in_band).dump(obj)
    return stream.getvalue()


def dumps_call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, Sequence[memoryview]]:
    """Pickle the arguments of a call; the common cases are one C call."""
    if not kwargs:
        if not args:
            return _EMPTY_CALL, ()
        for arg in args:
            if type(arg) not in _SCALARS:
                break
        else:
            return pickle.dumps((args, kwargs), 5), ()
    for arg in args:
        if type(arg) in _RAW and len(arg) >= RAW_SIZE:
            return dumps((_with_raw(args, kwargs), kwargs))
    return dumps((args, kwargs))


def dumps_value(value: Any) -> tuple[bytes, Sequence[memoryview]]:
    """Pickle a result; builtin scalars are one C call."""
    kind = type(value)
    if kind in _SCALARS:
        return pickle.dumps(value, 5), ()
    if kind in _RAW and len(value) >= RAW_SIZE:
        value = _Raw(value)
    return dumps(value)


class _Raw:
    """Stands for large bytes, which pickle would keep in band: copied four times on the way instead of once at its end."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self._data), (pickle.PickleBuffer(self._data),)


def _with_raw(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments in which `_Raw` stands for large bytes. A bytearray that may also be part of something else stays, as the
    receiver's must be one object, too."""
    plain = not kwargs and all(type(arg) in _SCALARS or type(arg) in _RAW for arg in args)
    raw = {
        id(arg): _Raw(arg)
        for arg in args
        if (type(arg) is bytes or (plain and type(arg) is bytearray)) and len(arg) >= RAW_SIZE
    }
    return tuple(raw.get(id(arg), arg) for arg in args)


def loads(payload: Bytes, buffers: Sequence[Bytes] = ()) -> Any:
    """The object that `dumps` wrote. Only for bytes of a peer that proved who it is."""
    return pickle.loads(payload, buffers=buffers)


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
        return _reduce_extension(kind, obj)


class _ValuePickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is untyped
    """cloudpickle, with classes that are set up once per receiver."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = _reduce_extension(type(obj), obj)
        if reduced is not NotImplemented:
            return reduced
        reduced = super().reducer_override(obj)
        if type(reduced) is tuple and len(reduced) == 6 and reduced[5] is _cloudpickle._class_setstate:
            if obj in _HIDDEN_TYPES:
                return _hidden_type, (_HIDDEN_TYPES[obj],)
            _applied.add(obj)  # here it is complete already; it may come back
            return (*reduced[:5], _set_class_once)
        return reduced


def _reduce_extension(kind: type, obj: Any) -> Any:
    reducer = _reducers.get(kind)
    if reducer is not None:
        return reducer(obj)
    if _lazy_reducers:
        package = kind.__module__.partition(".")[0]
        load = _lazy_reducers.get(package)
        if load is not None:
            _reducers.update(load())
            _lazy_reducers.pop(package, None)  # only now: until then, other threads must not take the default
            return _reduce_extension(kind, obj)
    return NotImplemented


def is_importable(obj: Any) -> bool:
    """Whether a class or function can be sent by its name."""
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


def _set_class_once(cls: type, state: Any) -> type:
    """Runs in the receiver: fill a class that came by value, unless an earlier message did."""
    if cls not in _applied:
        _cloudpickle._class_setstate(cls, state)
        _applied.add(cls)
    return cls
