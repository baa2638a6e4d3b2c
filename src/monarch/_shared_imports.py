"""Modules that the processes of an actor share, as their server has imported them.

`multiprocessing` forks them from a server, which knows none of the modules that the actor uses, so
each would import torch by itself. It is told when the actor starts the first of them.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
from multiprocessing.context import ForkServerProcess
from typing import Any

_MOST = 1000  # the kernel takes 128 Ki characters as an argument of a program
_class: Any = ForkServerProcess  # in which typeshed leaves out the method
_start = _class._Popen


def install(*first: str) -> None:
    """Have the server of this process, once it starts, import what this process has imported.

    Args:
        *first: Modules that it imports before.
    """

    def start_prepared(process: Any) -> Any:
        _prepare(*first)
        return _start(process)

    _class._Popen = staticmethod(start_prepared)


@functools.cache
def _prepare(*first: str) -> None:
    """Name the modules, unless the actor has said itself which they are."""
    from multiprocessing.forkserver import _forkserver

    if _forkserver._preload_modules == ["__main__"]:  # type: ignore[attr-defined]  # it is not public
        multiprocessing.set_forkserver_preload([*first, *_imported()])


def _imported() -> list[str]:
    """The modules of packages that are imported; packages first, should there be too many.

    Modules of the script are left out: they may do more than to define things.
    """
    files = {
        name: str(getattr(module, "__dict__", {}).get("__file__"))
        for name, module in list(sys.modules.items())
    }
    found = [name for name in files if "-packages/" in files[name] and name[:7] != "monarch"]
    return sorted(found, key=lambda name: "." in name)[:_MOST]
