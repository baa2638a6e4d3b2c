"""Objects to bytes and back: pickle 5, large buffers out of band, else cloudpickle.

Three speeds, tried in order:

1. only builtin scalars in the arguments: `pickle.dumps`, one C call;
2. anything importable: a C pickler with a `reducer_override` for objects of types that are not
    builtin;
3. classes and functions of ``__main__``, lambdas, closures: cloudpickle, by value.

The picklers of 2 and 3 are in `picklers`, which brings cloudpickle: it is imported when the first
object is sent.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from .frame import Bytes

OUT_OF_BAND_SIZE = 64 * 1024
"""Buffers of at least this many bytes stay out of the pickle."""

RAW_SIZE = 2 * 1024 * 1024
"""So do an argument, or a result, that is itself `bytes` or a `bytearray` of this size.

Smaller ones are quick enough on the socket, where they reach a process that has no descriptor left
as well.
"""

_SCALARS = frozenset({int, float, str, bool, type(None), complex})
_RAW = frozenset({bytes, bytearray})
_EMPTY_CALL = pickle.dumps(((), {}), protocol=5)


def dumps(obj: Any) -> tuple[bytes, Sequence[memoryview]]:
    """Pickle `obj`; returns the pickle and its out-of-band buffers, in order.

    Raises:
        Exception: As the object raises it when it is pickled.
    """
    buffers: list[memoryview] = []

    def in_band(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < OUT_OF_BAND_SIZE:
            return True
        buffers.append(raw)
        return False

    return _dump(obj, in_band, buffers.clear), buffers


def dumps_inline(obj: Any) -> bytes:
    """Pickle `obj` with everything in band."""
    return _dump(obj, None, lambda: None)


def _dump(*args: Any) -> bytes:
    """`picklers.dump`, imported on first use, as the import costs half of a small pickle."""
    global _dump
    from .picklers import dump

    _dump = dump
    return dump(*args)


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
    """Stands for large bytes, which pickle would keep in band: copied four times on the way instead
    of once at its end.
    """

    __slots__ = ("_data",)

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = data

    def __reduce_ex__(self, protocol: Any) -> Any:
        return type(self._data), (pickle.PickleBuffer(self._data),)


def _with_raw(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments in which `_Raw` stands for large bytes.

    A bytearray that may also be part of something else stays, as the receiver's must be one object,
    too.
    """
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
