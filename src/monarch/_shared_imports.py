"""What the processes of an actor share: modules that their server has imported.

`multiprocessing` forks them from a server, which knows none of the modules that the actor uses, so
each would import torch by itself. It is told when the actor starts the first of them.
"""

from __future__ import annotations

import functools
import multiprocessing
import sys
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from typing import Any

_LONGEST = 2**16  # characters; the kernel takes twice as many as an argument of a program
_FIRST = ("monarch._seeded_forks", "monarch._core.processes.forkserver")
_start: Any = ForkServerProcess._Popen  # type: ignore[attr-defined]


def install() -> None:
    """Have the server of this process, once it starts, import what this process has imported."""
    ForkServerProcess._Popen = staticmethod(_start_prepared)  # type: ignore[attr-defined]


def _start_prepared(process: Any) -> Any:
    _prepare()
    return _start(process)


@functools.cache
def _prepare() -> None:
    from multiprocessing.forkserver import _forkserver  # type: ignore[attr-defined]

    if _forkserver._preload_modules == ["__main__"]:  # or the actor has said what it wants
        multiprocessing.set_forkserver_preload([*_FIRST, *_imported()])


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
