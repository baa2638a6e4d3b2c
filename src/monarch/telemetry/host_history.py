"""Load, memory and disk of a host over the last ten minutes: a row each ten seconds.

A host agent begins with that when it is first asked for the host, and goes on: programs that are
not looked at pay nothing, and later looks show the time in between.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from .._namedtuple import NamedTuple
from .registry import Asked

PERIOD = 10.0
"""Seconds between two rows."""

KEPT = 60
"""Rows of a host."""

_ENOUGH = 0.1  # of a period, after which who asks has the present as well


class Figures(NamedTuple):
    """Figures of a host at a moment; None for what the kernel does not tell.

    Attributes:
        load: Of a minute.
        memory: Bytes in use.
        swap: Bytes in use.
        cpu: Seconds that its CPUs have worked.
        received: Bytes, since it started.
        sent: Bytes, since it started.
        disk: Per cent in use of the fullest.
    """

    load: float | None
    memory: int | None
    swap: int | None
    cpu: float | None
    received: int | None
    sent: int | None
    disk: float | None = None


class Timers(Protocol):
    """The part of a poller that is used."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        """Call a function after so many seconds."""


class HostHistory:
    """The rows of a host.

    Args:
        timers: Those of the agent.
        look: Finds the figures of now.
        clock: Gives seconds since 1970.
    """

    def __init__(
        self, timers: Timers, look: Callable[[], Figures], clock: Callable[[], float] = time.time
    ) -> None:
        self.timers = timers
        self._look = look
        self._clock = clock
        self._rows: deque[tuple[int, Figures]] = deque(maxlen=KEPT)
        self._tick()

    def rows(self) -> list[tuple[int, Figures]]:
        """The rows, with when they were, in microseconds since 1970; the last one is of now."""
        if self._clock() * 1e6 - self._rows[-1][0] < _ENOUGH * PERIOD * 1e6:
            return list(self._rows.copy())
        return [*self._rows.copy(), self._now()]

    def _now(self) -> tuple[int, Figures]:
        return int(self._clock() * 1e6), self._look()

    def _tick(self) -> None:
        self._rows.append(self._now())
        self.timers.call_later(PERIOD, self._tick)


_own: HostHistory | None = None
_lock = threading.Lock()


def begin(asked: Asked, look: Callable[[], Figures]) -> HostHistory:
    """The rows of this host, which are kept from the first time that this is called.

    Args:
        asked: By whom.
        look: Finds the figures of now.
    """
    global _own
    poller = asked.service.hub.poller
    with _lock:
        if _own is None or _own.timers is not poller:
            _own = HostHistory(poller, look)
        return _own
