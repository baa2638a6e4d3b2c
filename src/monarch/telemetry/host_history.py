"""Load, memory, disk and GPUs of a host over the last ten minutes: a row each ten seconds.

A host agent begins with that when it is first asked for the host, and goes on: programs that are
not looked at pay nothing, and later looks show the time in between. Drivers of GPUs are asked on a
thread of their own, and no further while one does not answer: nothing else of the agent waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from .._namedtuple import NamedTuple
from .registry import Asked

PERIOD = 10.0
"""Seconds between two rows."""

KEPT = 60
"""Rows of a host."""

_ENOUGH = 0.1  # of a period, after which who asks has the present as well
_NO_GPUS = (None,) * 6

Gpus = Callable[[], tuple[float | None, ...]]
"""Finds the figures of the GPUs of a host; see `gpus.figures`."""


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
        gpus: Finds those of its GPUs; None where it has none.
    """

    def __init__(
        self,
        timers: Timers,
        look: Callable[[], Figures],
        clock: Callable[[], float] = time.time,
        gpus: Gpus | None = None,
    ) -> None:
        self.timers = timers
        self._look = look
        self._clock = clock
        self._gpus = gpus
        self._asking: threading.Thread | None = None
        self._rows: deque[tuple[int, Figures]] = deque(maxlen=KEPT)
        self._of_gpus: deque[tuple[int, tuple[float | None, ...]]] = deque(maxlen=KEPT)
        self._tick()

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows: when, in microseconds since 1970, figures, those of GPUs; the last is of now."""
        rows = list(self._rows.copy())
        if self._clock() * 1e6 - rows[-1][0] >= _ENOUGH * PERIOD * 1e6:
            rows.append(self._now())
        of_gpus = dict(self._of_gpus.copy())
        return [(at, *figures, *of_gpus.get(at, _NO_GPUS)) for at, figures in rows]

    def _now(self) -> tuple[int, Figures]:
        return int(self._clock() * 1e6), self._look()

    def _tick(self) -> None:
        self._rows.append(self._now())
        self.timers.call_later(PERIOD, self._tick)
        if self._gpus is not None and (self._asking is None or not self._asking.is_alive()):
            ask = partial(self._ask, self._gpus, self._rows[-1][0])
            self._asking = threading.Thread(target=ask, name="monarch-gpus", daemon=True)
            self._asking.start()

    def _ask(self, gpus: Gpus, at: int) -> None:
        self._of_gpus.append((at, gpus()))


_own: HostHistory | None = None
_lock = threading.Lock()


def begin(
    asked: Asked, look: Callable[[], Figures], find_gpus: Callable[[], Gpus | None]
) -> HostHistory:
    """The rows of this host, which are kept from the first time that this is called.

    Args:
        asked: By whom.
        look: See `HostHistory`.
        find_gpus: Called that first time alone, gives `gpus` of `HostHistory`.
    """
    global _own
    poller = asked.service.hub.poller
    with _lock:
        if _own is None or _own.timers is not poller:
            _own = HostHistory(poller, look, gpus=find_gpus())
        return _own
