"""Signals while the main thread reads a connection: noted at once, delivered when the connection is whole again.

The interpreter runs signal handlers in the main thread between any two instructions. One that raises there could lose
bytes that were read but not yet handed on. While it reads, the main thread therefore has a handler that only takes a
note and ends the wait; afterwards the program's own handler runs, as if the signal had come a moment later.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # a builtin module that typeshed does not know
import threading
from collections.abc import Callable
from typing import Any

_getsignal = _signal.getsignal
# `signal` wraps the same functions in enums, which costs 5 µs here
_HELD = tuple(int(getattr(_signal, name)) for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2"))


class HeldInterrupts:
    """A context in which no signal handler of the program runs; those that were due run at its end.

    Args:
        wake: Ends the wait of the current thread.
    """

    __slots__ = ("_handlers", "_wake", "came")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._handlers: list[tuple[int, Any]] = []
        self.came: list[int] = []

    def __enter__(self) -> HeldInterrupts:
        if threading.get_ident() == threading.main_thread().ident:
            for number in _HELD:
                handler = _getsignal(number)
                if handler.__class__ is not int and handler is not None:  # neither ignored, nor the system's own
                    self._handlers.append((number, handler))
                    _signal.signal(number, self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._handlers:
            _signal.signal(number, handler)
        if self.came:
            for number, handler in self._handlers:
                if number in self.came:
                    handler(number, None)

    def _note(self, number: int, frame: object) -> None:
        self.came.append(number)
        self._wake()
