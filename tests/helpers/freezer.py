"""The freezer of control groups, version 1: what is frozen stands still, and nobody is told."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

FREEZER = Path("/sys/fs/cgroup/freezer")
OURS = f"monarch-frozen-{os.getpid()}-"
"""How the names of groups begin that this process has made."""


def why_not() -> str:
    """Why there is no freezer here; empty if there is one."""
    if os.access(FREEZER / "tasks", os.W_OK):
        return ""
    return f"needs the freezer of control groups, version 1, in {FREEZER}, and root"


@contextmanager
def freezer_group() -> Iterator[Path]:
    """A new group, for `frozen`."""
    group = Path(tempfile.mkdtemp(prefix=OURS, dir=FREEZER))
    try:
        yield group
    finally:
        group.rmdir()


@contextmanager
def frozen(threads: Sequence[str], group: Path) -> Iterator[None]:
    """A block in which threads, by their numbers, are frozen; those that have ended are no matter."""
    try:
        for thread in threads:
            with suppress(OSError):
                (group / "tasks").write_text(thread)
        (group / "freezer.state").write_text("FROZEN")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        # and what they have forked
        while left := (group / "tasks").read_text().split():
            for thread in left:
                with suppress(OSError):
                    (group.parent / "tasks").write_text(thread)
            time.sleep(0.001)
