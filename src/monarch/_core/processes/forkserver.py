"""Processes that actors start with `multiprocessing`: workers of a data loader, pools.

They start from a clean process, as a proc has threads, which a fork would cut off. So all that they
get is pickled, which `multiprocessing` does by name; and what a script defines has no name in a
proc, nor in what it starts. Here that goes by value, as it does in messages, both ways. Import this
late: few actors use `multiprocessing`.
"""

from __future__ import annotations

import multiprocessing
import types
import weakref
from contextlib import suppress
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ... import _shared_imports
from ..wire import pickling, script
from ..wire.picklers import is_importable


def prefer() -> None:
    """Have this process start its own from a clean one, unless it has said otherwise."""
    if multiprocessing.get_start_method(allow_none=True) is None:
        multiprocessing.set_start_method("forkserver")
    _install()


def _install() -> None:
    if not hasattr(ForkingPickler, "reducer_override"):
        # a method, though not by its type
        ForkingPickler.reducer_override = _reduce  # type: ignore[assignment]
        _shared_imports.install("monarch._seeded_forks", __name__)


def _reduce(_: ForkingPickler, obj: Any) -> Any:
    if isinstance(obj, BaseProcess):
        reduced: Any = obj.__reduce_ex__(2)
        return (*reduced[:2], {**reduced[2], "_of_script": _Names()})
    if (isinstance(obj, type) or type(obj) is types.FunctionType) and not is_importable(obj):
        return _arrive, (pickling.dumps_inline(obj),)
    return NotImplemented


class _Names:
    """Tells a process the names of the script that are known here."""

    def __reduce__(self) -> Any:
        known = script.known().items()
        return _learn, ({name: each for name, value in known if (each := _pickled(value))},)


def _pickled(value: Any) -> bytes:
    """Return a class or function as bytes, to be read once needed; nothing where it brings much."""
    if not isinstance(value, (type, types.FunctionType)):
        return value if type(value) is bytes else b""
    if value not in _known:
        _known[value] = b""
        with suppress(Exception):  # it can't be sent
            if len(pickled := pickling.dumps_inline(value)) < _MOST:
                _known[value] = pickled
    return _known[value]


_known: weakref.WeakKeyDictionary[Any, bytes] = weakref.WeakKeyDictionary()
_MOST = 1024 * 1024  # more is data, which not each process needs


def _learn(names: dict[str, bytes]) -> None:
    _install()
    script.install()
    script.handed.update(names)


def _arrive(pickled: bytes) -> Any:
    """Note, in the started process, that the classes it sends back are the script's, too."""
    _learn({})
    return pickling.loads(pickled)
