"""A line for terminals while hosts are attached."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection

from .._core.calls.future import Future
from .._core.calls.pending import subscribe
from .._core.net.poller import Poller
from .._core.wire.address import host_labels
from .._words import draw, named

AFTER = 3.0  # seconds that hosts which are up may need; a wait worth a word is longer
_INTERVAL = 1.0  # seconds
_MOST_NAMES = 8
_CLEAR = "\033[K"  # the rest of the line


class AttachProgress:
    """A line for terminals from `AFTER` seconds on until `attached` is done.

    ``waiting for 3 of 16 hosts: node4, node7, node9; 12 s of 60 s``.

    Args:
        poller: Calls it on time.
        missing: The hosts that have not answered, now and later.
        total: How many are attached together.
        limit: Seconds until they are given up.
        attached: Done when all have answered, or one was given up.
    """

    def __init__(
        self,
        poller: Poller,
        missing: Collection[str],
        total: int,
        limit: float,
        attached: Future[bool],
    ) -> None:
        self._poller = poller
        self._missing = missing
        self._total = total
        self._limit = limit
        self._begin = time.monotonic()
        self._shown = False
        self._over = False
        if sys.stderr is not None and sys.stderr.isatty():
            subscribe(attached, self._end)
            poller.call_later(AFTER, self._show)

    def _show(self) -> None:
        if self._over:
            return
        self._shown = True
        elapsed = time.monotonic() - self._begin
        # The cursor goes back to where the line begins: what the program prints takes its place.
        draw(f"{progress_line(self._missing, self._total, elapsed, self._limit)}{_CLEAR}\r")
        self._poller.call_later(_INTERVAL, self._show)

    def _end(self) -> None:
        self._over = True
        if self._shown:
            draw(_CLEAR)


def progress_line(missing: Collection[str], total: int, elapsed: float, limit: float) -> str:
    """The text about `missing` hosts, given by address, after `elapsed` seconds."""
    names = sorted(host_labels([*missing]))
    shown = ", ".join(map(named, names[:_MOST_NAMES]))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (
        f"waiting for {len(names)} of {total} hosts: {shown}{more}; {elapsed:.0f} s of"
        f" {limit:.0f} s"
    )
