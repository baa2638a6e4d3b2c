"""Memory that is moved, and how long a plain copy of as much takes."""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any


def address_of(memory: bytearray) -> int:
    return ctypes.addressof((ctypes.c_char * len(memory)).from_buffer(memory))


def copier(sources: Sequence[bytearray]) -> Callable[[], None]:
    """Copies each into memory of its own, all of it warm: with `numpy.copyto` where there is
    numpy.
    """
    targets = [bytearray(source) for source in sources]
    pairs: list[tuple[Any, Any]] = [
        (memoryview(target), memoryview(source))
        for target, source in zip(targets, sources, strict=True)
    ]
    copy_one: Callable[[Any, Any], None] = _assign
    with suppress(ImportError):
        numpy: Any = importlib.import_module("numpy")
        pairs = [
            (numpy.frombuffer(target, "u1"), numpy.frombuffer(source, "u1"))
            for target, source in pairs
        ]
        copy_one = numpy.copyto

    def copy() -> None:
        for target, source in pairs:
            copy_one(target, source)

    return copy


def _assign(target: memoryview, source: memoryview) -> None:
    target[:] = source
