"""The kernel's view of processes and threads: where they are, and how long they have run.

Nothing here waits.

Each function answers also where the kernel does not tell, as in some sandboxes: with nothing.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from .._proc_stat import MAJOR_FAULTS, STATE, stat_of, status_field
from .model import Kernel

_CALLS: dict[str, dict[int, str]] = {
    "x86_64": {
        0: "read", 1: "write", 7: "poll", 17: "read", 18: "write", 23: "select", 35: "sleep", 42: "connect", 43: "accept", 44: "send",
        45: "receive", 46: "send", 47: "receive", 61: "wait for a child", 72: "lock", 73: "lock", 74: "fsync", 75: "fsync", 202: "futex",
        230: "sleep", 232: "poll", 247: "wait for a child", 270: "select", 271: "poll", 281: "poll", 288: "accept",
    },
    "aarch64": {
        22: "poll", 25: "lock", 32: "lock", 63: "read", 64: "write", 67: "read", 68: "write", 72: "select", 73: "poll", 82: "fsync",
        83: "fsync", 95: "wait for a child", 98: "futex", 101: "sleep", 115: "sleep", 202: "accept", 203: "connect", 206: "send",
        207: "receive", 211: "send", 212: "receive", 242: "accept", 260: "wait for a child",
    },
}  # fmt: skip
_NAMES = _CALLS.get(os.uname().machine, {})
_WITHOUT_FILE = {
    "sleep": "a sleep",
    "futex": "a wait for another thread, or a lock",
    "wait for a child": "a wait for a child process",
    "poll": "a wait for several files",
    "select": "a wait for several files",
}


def thread_time(number: int) -> int:
    """CPU time in nanoseconds of a thread of this process, by its `native_id`.

    -1 if there is no such.
    """
    try:
        # CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED; see clock_getcpuclockid(3)
        return time.clock_gettime_ns((~number << 3) | 6)
    except OSError:
        return -1


def system_call(number: int) -> str:
    """The system call in which a thread of this process waits: ``read of pipe:[4711]``."""
    try:
        with open(f"/proc/self/task/{number}/syscall") as file:
            words = file.read().split()
        name = _NAMES.get(int(words[0]), "")
    except (OSError, ValueError, IndexError):  # "running" is no number
        return ""
    if not name or name in _WITHOUT_FILE:
        return _WITHOUT_FILE.get(name, "")
    with suppress(OSError, ValueError):
        return f"{name} of {os.readlink(f'/proc/self/fd/{int(words[1], 16)}')}"
    return name


def look_at(pid: int) -> Kernel | None:
    """Return the kernel's view of a process of this machine; None if it has ended."""
    try:
        ran = time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return None
    stat = stat_of(pid)
    if not stat:
        return None
    swapped = 0
    with suppress(OSError, ValueError):
        swapped = int(status_field(pid, "VmSwap").removesuffix("kB")) * 1024
    return Kernel(stat[STATE], ran, swapped, int(stat[MAJOR_FAULTS]))
