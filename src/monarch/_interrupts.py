"""Signals while the main thread reads a connection.

They are noted at once, and delivered when the connection is whole again.

The interpreter runs signal handlers in the main thread between any two instructions. One that
raises there could lose bytes that were read but not yet handed on. While it reads, the main thread
therefore has a handler that only takes a note and ends the wait; afterwards the program's own
handler runs, as if the signal had come a moment later.

That goes for each signal that has a handler of the program at that moment. All are looked at each
time: a microsecond, in which the answer is on its way.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # a builtin module that typeshed does not know
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

Handler = tuple[int, Any]

_getsignal = _signal.getsignal
# `signal` wraps the same functions in enums, which costs 5 µs here
_SIGNALS = tuple(sorted(_signal.valid_signals()))
_known: tuple[list[Any], Sequence[Handler]] = [], ()
"""The handlers of all signals when they were last looked at, and those of the program among
them.
"""

# seconds after which the main thread looks for signals while it waits: one that the kernel gives to
# another thread, as after Ctrl-Z, does not end its wait, nor one that came just before
LOOK = 1.0
_main_thread = threading.main_thread().ident


def _note_main_thread() -> None:
    global _main_thread
    _main_thread = threading.main_thread().ident


os.register_at_fork(after_in_child=_note_main_thread)


def look() -> None:
    """Have the main thread look for signals, if it reads a connection; on another thread."""
    _holding._wake()


class HeldInterrupts:
    """A context in which no signal handler of the program runs; those that were due run at its end.

    Args:
        wake: Ends the wait of the current thread.

    Attributes:
        came: The signals that came, and where; of each the first.
    """

    __slots__ = ("_handlers", "_outer", "_wake", "came")

    def __init__(self, wake: Callable[[], object] = lambda: None) -> None:
        self._wake = wake
        self._handlers: Sequence[Handler] = ()
        self.came: dict[int, FrameType | None] = {}

    def __enter__(self) -> HeldInterrupts:
        global _holding
        if threading.get_ident() == _main_thread:
            self._handlers = _programs_handlers()
            try:
                for number, _ in self._handlers:
                    _signal.signal(number, self._note)
            except BaseException:  # one that is not held yet came, and raised
                self._give_back()
                raise
            if self._handlers:
                self._outer, _holding = _holding, self
        return self

    def __exit__(self, *exc: object) -> None:
        global _holding
        if self._handlers:
            _holding = self._outer
            self._give_back()
            if self.came:
                self._deliver(iter(self._handlers))

    def _give_back(self) -> None:
        try:
            for number, handler in self._handlers:
                _signal.signal(number, handler)
        except BaseException:  # one that is back already came, and raised
            self._give_back()
            raise

    def _deliver(self, handlers: Iterator[Handler]) -> None:
        for number, handler in handlers:
            if number in self.came:
                try:
                    handler(number, self.came[number])
                finally:
                    self._deliver(handlers)  # what one raises does not lose the others

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came.setdefault(number, frame)
        self._wake()


_holding = HeldInterrupts()
"""Where the main thread is; this one, which does nothing, where it holds no interrupts."""


def _programs_handlers() -> Sequence[Handler]:
    """The handlers that are neither the system's own nor "ignore", nor written in C."""
    global _known
    found = [*map(_getsignal, _SIGNALS)]
    if found != _known[0]:
        pairs = zip(_SIGNALS, found, strict=True)
        handlers = [
            (number, handler)
            for number, handler in pairs
            if handler.__class__ is not int and handler is not None
        ]
        _known = found, handlers  # at once, as a handler may run, and raise, before the next line
        return handlers
    return _known[1]
