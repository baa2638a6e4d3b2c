"""The guard against a program that starts itself over and over.

A proc imports the module of each class it gets. Should that module start procs at its top level,
they would import it as well, start procs, and so on, until the machine is full. So nothing is
started from an import that the engine makes; from one that user code makes, it may be, unless that
very module has started the procs in which it is imported now. The second wall is
`proc_nesting_limit`, for what the first can't see.

Nothing is noted when something is imported or unpickled: a thread looks at its own stack, and only
when it starts something.
"""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType

from .. import config
from .._namedtuple import NamedTuple

SPEC_VARIABLE = "MONARCH_PROC_SPEC"
"""Environment variable that names the descriptor from which an executed proc reads its
`ProcSpec`.
"""


class Nesting(NamedTuple):
    """The place of a process among procs that own procs.

    Attributes:
        level: 0 for a client, 1 for its procs, 2 for those that they spawn.
        modules: Files that have started it, or one of the procs above it, from their top level.
    """

    level: int
    modules: frozenset[str] = frozenset()


nesting = Nesting(0)
"""Of this process. Set by a proc when it begins."""
forks_procs = False
"""Whether this is a spawner. A proc that it has forked is none."""

_ENGINE = ("monarch._core.", "monarch.rdma.", "monarch.tensor_engine.")
_ADVICE = """\
Every proc imports that module, so what starts procs must not stand at its top level. Put it where only the program runs it:

    if __name__ == "__main__":
        ..."""


def refuse_imports(what: str) -> None:
    """Refuse to start something while the engine imports a module, in a proc or in the process that
    forks procs; or in a proc that the same module has started, as it was imported elsewhere.

    Args:
        what: The refused action, for the error.

    Raises:
        RuntimeError: It does.
    """
    place = importing()
    if place is not None:
        raise RuntimeError(
            f"{what} was called by the top level of a module that monarch imports, at"
            f" {place}.\n{_ADVICE}"
        )
    # the latter in a program that was started to become a proc
    if forks_procs or SPEC_VARIABLE in os.environ:
        raise RuntimeError(
            f"{what} was called by a module that a proc imports before it begins.\n{_ADVICE}"
        )
    if nesting.modules:
        for file in _running_modules() & nesting.modules:
            raise RuntimeError(
                f"{what} was called by the top level of {file}, in a proc that the top level of"
                f" {file} has started.\n{_ADVICE}"
            )


def nest() -> Nesting:
    """The nesting of procs that this process is about to start.

    Raises:
        RuntimeError: They would be too deep.
    """
    limit = config.value("proc_nesting_limit")
    level, modules = nesting
    if level > limit:
        raise RuntimeError(
            f"spawn_procs was called in a proc of level {level}, where those of the client are"
            f" level 1, and only those of up to level {limit} may own procs (proc_nesting_limit)."
            " Does each proc start the next one?"
        )
    return Nesting(level + 1, modules | _running_modules())


def _running_modules() -> set[str]:
    """Files with a top level that the current thread is running."""
    files = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        # `python -c` tells nothing
        if code.co_name == "<module>" and not code.co_filename.startswith("<"):
            files.add(code.co_filename)
        frame = frame.f_back
    return files


def note_importer(thread: threading.Thread) -> None:
    """A new thread belongs to the import that starts it, if one does."""
    place = importing()
    if place is not None:
        thread._monarch_import = place  # type: ignore[attr-defined]  # ours


def importing() -> str | None:
    """The line of a module at which the thread is, if the engine imports it; None otherwise."""
    frame: FrameType | None = sys._getframe(1)
    place = None
    inside = False
    while frame is not None:
        code = frame.f_code
        name = frame.f_globals.get("__name__", "")
        if code.co_filename.startswith("<frozen importlib"):
            inside = True
        elif name != "importlib" and not name.startswith("cloudpickle"):  # which import for others
            if inside and name.startswith(_ENGINE):
                return place or "its top level"
            inside = False
            if code.co_name == "<module>" and place is None:
                place = f"{code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return getattr(threading.current_thread(), "_monarch_import", None)
