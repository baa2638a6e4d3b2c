"""Sessions go on after an unhandled failure: prompts, notebooks and test runs.

Imported by the plugin of pytest in runs that use no Monarch: it may import nothing of weight.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ..._lazy import whole

if TYPE_CHECKING:
    from ..supervision.failure import MeshFailure


class Session(Protocol):
    def part(self, waits: Collection[object]) -> object:
        """Return the part that runs: a cell, a test; None in between.

        Args:
            waits: What the program waits for.
        """

    def report(self, failures: Sequence[MeshFailure], text: str) -> None:
        """Report failures that no owner handled; the text says so."""


class Prompt:
    """A person's, in a terminal or a notebook."""

    def part(self, waits: Collection[object]) -> object:
        shell = _shell()
        if shell is None:
            return "prompt"
        return shell.execution_count if waits or _main_thread_is_in("run_code") else None

    def report(self, failures: Sequence[MeshFailure], text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _shell() -> Any:
    get_shell = getattr(whole("IPython"), "get_ipython", None)
    return get_shell() if get_shell is not None else None


def at_end_of_cells(callback: Callable[[], object]) -> None:
    """Have `callback` called at the end of each cell of IPython, in place of the one before."""
    global _at_end
    shell = _shell()
    if shell is not None:
        if _at_end is None:
            shell.events.register("post_run_cell", lambda *result: _at_end and _at_end())
        _at_end = callback


_at_end: Callable[[], object] | None = None


current: Session | None = None
"""Set by what runs a program in parts and is no prompt."""


def find() -> Session | None:
    """The session that this program is, if it is one."""
    if current is not None:
        return current
    return Prompt() if hasattr(sys, "ps1") or sys.flags.interactive else None


def _main_thread_is_in(function: str) -> bool:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None
