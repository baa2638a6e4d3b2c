"""Which processes a workload started, whatever became of their parents, and how to end them.

Every process inherits the environment that the workload was started with, so a mark in it finds
those too that got another parent, process group or session. A killed client of torchmonarch 0.7.0
can leave such processes behind.
"""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path

MARK = "PYMONARCH_BENCHMARK_RUN"
POLL_S = 0.02


def new_mark() -> str:
    """A value for the variable `MARK` that no other execution has."""
    return uuid.uuid4().hex


def marked(mark: str) -> set[int]:
    """The living processes with this mark, zombies left out."""
    wanted = f"{MARK}={mark}".encode()
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.add(int(folder.name))
        except OSError:
            continue  # it ended meanwhile, or is another user's
    return found


def wait_until_gone(
    mark: str, limit_s: float, clock: Callable[[], float] = time.monotonic
) -> set[int]:
    """Wait for all processes with this mark to end by themselves; return those that didn't within
    `limit_s`.
    """
    deadline = clock() + limit_s
    while (left := marked(mark)) and clock() < deadline:
        time.sleep(POLL_S)
    return left


def kill(mark: str, limit_s: float = 10.0) -> None:
    """Kill all processes with this mark, also those that they start meanwhile."""
    deadline = time.monotonic() + limit_s
    while (left := marked(mark)) and time.monotonic() < deadline:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(POLL_S)
