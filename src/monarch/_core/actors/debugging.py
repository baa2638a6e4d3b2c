"""Where actors reach the debugger, a guest: when something stops, or source is missing."""

from __future__ import annotations

import sys
from typing import Any

from ..extension import debug_offer, source_lines, stop_here
from ..hub.contracts import Hub
from ..hub.control import send_record


def install() -> None:
    """Have ``breakpoint()`` stop the actor that runs.

    Lines of source come from the client where only that one has them.
    """
    import linecache  # which a proc has imported anyway, and a client may never need

    update: Any = getattr(linecache.updatecache, "__wrapped__", linecache.updatecache)

    def update_cache(filename: str, module_globals: Any = None) -> list[str]:
        lines: list[str] = update(filename, module_globals)
        if lines or (filename.startswith("<") and not filename.startswith("<ipython-")):
            return lines
        return source_lines(filename)

    update_cache.__wrapped__ = update  # type: ignore[attr-defined]  # as functools.wraps does
    sys.breakpointhook = breakpoint
    linecache.updatecache = update_cache


def uninstall() -> None:
    """Uninstall the debugger in a forked child, which no terminal reaches."""
    import linecache

    sys.breakpointhook = _refuse
    linecache.updatecache = getattr(linecache.updatecache, "__wrapped__", linecache.updatecache)


def offer(hub: Hub) -> None:
    """Tell the client that editors can attach to this process."""
    if (record := debug_offer()) is not None:
        send_record(hub, hub.root, record)


def breakpoint(*args: object, **kwargs: object) -> None:  # noqa: A001 - stacks show this name
    stop_here(sys._getframe(1))


def _refuse(*args: object, **kwargs: object) -> None:
    raise NotImplementedError(
        "breakpoint() in a process that an actor has forked: the debugger does not reach it. Call"
        " it in the actor itself: run what the child runs there (for a DataLoader: num_workers=0)"
    )
