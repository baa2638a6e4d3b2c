"""Ctrl-C while the main thread reads a connection: noted at once, delivered when the connection is whole again.

The interpreter runs signal handlers in the main thread between any two instructions. One that raises there could lose
bytes that were read but not yet handed on. While it reads, the main thread therefore has a handler that only takes a
note and ends the wait; afterwards the program's own handler runs, as if the signal had come a moment later.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # a builtin module that typeshed does not know
import threading
from collections.abc import Callable
from typing import Any

_SIGINT = int(_signal.SIGINT)  # `signal` wraps the same functions in enums, which costs 5 µs here


class HeldInterrupt:
    """A context in which SIGINT raises nothing.

    Args:
        wake: Ends the wait of the current thread.
    """

    __slots__ = ("_handler", "_wake", "came")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._handler: Any = None
        self.came = False

    def __enter__(self) -> HeldInterrupt:
        if threading.current_thread() is threading.main_thread():
            handler = _signal.getsignal(_SIGINT)
            if callable(handler):  # neither ignored, nor the system's own
                self._handler = handler
                _signal.signal(_SIGINT, self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        handler = self._handler
        if handler is not None:
            _signal.signal(_SIGINT, handler)
            if self.came:
                handler(_SIGINT, None)

    def _note(self, number: int, frame: object) -> None:
        self.came = True
        self._wake()
