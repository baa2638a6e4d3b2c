"""Processes that actors start with `multiprocessing`: workers of a data loader, pools.

They start from a clean process, as a proc has threads, which a fork would cut off. When it first
starts one, that process imports what the proc has imported from packages, once: they are forks of
it, which share its memory. All that they get is pickled, which `multiprocessing` does by name; and what a script defines has no name in a
proc, nor in what it starts. Here that goes by value, as it does in messages, both ways. Import this
late: few actors use `multiprocessing`.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
import types
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ..wire import pickling
from ..wire.picklers import is_importable

_LONGEST = 2**16  # characters; the kernel takes twice as many as an argument of a program
_start: Any = ForkServerProcess._Popen  # type: ignore[attr-defined]


def prefer() -> None:
    """Have this process start its own from a clean one, unless it has said otherwise."""
    if multiprocessing.get_start_method(allow_none=True) is None:
        multiprocessing.set_start_method("forkserver")
    _install()


def _install() -> None:
    if not hasattr(ForkingPickler, "reducer_override"):
        # a method, though not by its type
        ForkingPickler.reducer_override = _reduce  # type: ignore[assignment]
        ForkServerProcess._Popen = staticmethod(_start_prepared)  # type: ignore[attr-defined]


def _start_prepared(process: Any) -> Any:
    _share_imports()
    return _start(process)


@functools.cache
def _share_imports() -> None:
    from multiprocessing.forkserver import _forkserver  # type: ignore[attr-defined]

    if _forkserver._preload_modules == ["__main__"]:  # or the actor has said what it wants
        multiprocessing.set_forkserver_preload(["monarch._seeded_forks", __name__, *_imported()])


def _imported() -> Iterator[str]:
    """The modules of packages that are imported; packages first, should there be too many.

    Modules of the script are left out: they may do more than to define things.
    """
    files = {
        name: getattr(module, "__dict__", {}).get("__file__")
        for name, module in list(sys.modules.items())
    }
    length = 0
    for name in sorted(files, key=lambda name: "." in name):
        if "-packages/" in (files[name] or "") and name.partition(".")[0] != "monarch":
            length += len(name) + len("'', ")
            if length < _LONGEST:
                yield name


def _reduce(_: ForkingPickler, obj: Any) -> Any:
    if (isinstance(obj, type) or type(obj) is types.FunctionType) and not is_importable(obj):
        return _arrive, (pickling.dumps_inline(obj),)
    return NotImplemented


def _arrive(pickled: bytes) -> Any:
    """Note, in the started process, that what is sent back is of the script, too."""
    _install()
    return pickling.loads(pickled)
