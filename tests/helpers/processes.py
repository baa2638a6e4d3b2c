"""The processes behind the actors: who is whose parent, and how each is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.waiting import NO_PROCESS, wait_until
from monarch._proc_stat import PARENT, STATE, stat_of


def heed_signals() -> None:
    """Take the signals that a shell has what it starts in the background ignore, as `nohup` does:
    each program of a test would.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def parent_of(pid: int) -> int:
    return int(stat_of(pid)[PARENT])


def spawner_of(proc: int) -> int:
    """The process that forks procs, of the host that runs the proc with this pid."""
    return parent_of(proc)


def agent_of(proc: int) -> int:
    """The host agent, of the host that runs the proc with this pid."""
    return parent_of(parent_of(proc))


def wait_stopped(pid: int) -> None:
    if pid <= NO_PROCESS:  # others stand still at once
        wait_until(lambda: stat_of(pid)[STATE] == "T", what=f"process {pid} to be stopped")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process stands still for the length of a block, if it lives that long."""
    os.kill(pid, signal.SIGSTOP)
    wait_stopped(pid)
    try:
        yield
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def stack_of(pid: int) -> str:
    """What a process does right now, for the message of a test that has waited for it in vain."""
    tool = Path(sys.executable).with_name("py-spy")
    command = [str(tool) if tool.exists() else "py-spy", "dump", "--pid", str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"process {pid}: {error}"
    return done.stdout or f"process {pid}: {done.stderr}"
