"""Bounded waits for conditions. No test sleeps for a fixed time to let something happen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from monarch._proc_stat import stat_of

T = TypeVar("T")

# Long enough for a machine that is busy with other tests; only a hang takes this long.
PATIENCE = 150.0

# The largest pid of Linux: procs of `monarch.testing.local` have others.
NO_PROCESS = 2**22

rest = time.sleep
"""What the waits below do between two looks."""


def wait_until(
    condition: Callable[[], T],
    *,
    what: str | Callable[[], str],
    timeout: float = PATIENCE,
    interval: float = 0.01,
) -> T:
    """Returns the first true value of `condition()`; AssertionError naming `what` after `timeout`
    seconds. A callable says then how it is, not how it was when the wait began.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s for: {what() if callable(what) else what}")
        rest(interval)


def is_alive(pid: int) -> bool:
    """True while `pid` is a process that has not ended (a zombie has ended)."""
    if pid > NO_PROCESS:
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False
    return stat_of(pid)[:1] not in ([], ["Z"])


def wait_gone(pid: int, *, timeout: float = PATIENCE) -> None:
    wait_until(lambda: not is_alive(pid), what=f"the end of process {pid}", timeout=timeout)
