"""Source lines of modules that exist at the client alone.

Tracebacks and the debugger of other processes show them.

A file that this process does not have is asked for once. What ends the wait: the answer, the end of
the client, `_PATIENCE`.
"""

from __future__ import annotations

import linecache
import sys
import threading

from .._answering import answer_on_thread
from .._core import plane
from .protocol import GetSource, value_of

_PATIENCE = 2.0  # seconds
_MOST_FILES = 256
_LONGEST = 4 << 20  # characters

# also what the client does not have: a traceback with it is shown again and again
_asked: set[str] = set()


def fetch(file: str) -> list[str]:
    """The lines of a file that this process does not have, for `linecache`, which keeps them.

    It is None if the client does not have them either.
    """
    hub = plane.current_hub()
    if (
        file in _asked
        or len(_asked) >= _MOST_FILES
        or threading.get_ident() == hub.poller.thread_id
    ):
        return []
    _asked.add(file)
    came: plane.Promise[str | None] = plane.Promise(f"the source of {file}")
    plane.ask_one(hub, hub.root, GetSource(file), lambda reply: came.resolve(value_of(reply)))
    try:
        plane.block(came.future, _PATIENCE)
    except TimeoutError:
        return []
    text = came.future.get()
    if text is None:
        return []
    lines = text.splitlines(keepends=True)
    linecache.cache[file] = (len(text), None, lines, file)
    return lines


def answer(request: plane.ControlRequest, record: GetSource) -> None:
    """The text of a module that this program has loaded, or of a cell; asked at the client.

    Other files are refused.
    """
    answer_on_thread(request, "monarch-debugger", read, record.file)


def read(file: str) -> str | None:
    """The text of a module that this program has loaded; None if it has none, or is too long."""
    loaded = file in linecache.cache or any(
        getattr(module, "__file__", None) == file for module in list(sys.modules.values())
    )
    text = "".join(linecache.getlines(file)) if loaded else ""
    return text if 0 < len(text) <= _LONGEST else None
