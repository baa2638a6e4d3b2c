"""The detector of kills by the kernel for lack of memory, which look like any other SIGKILL."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from ._guards.surroundings import control_groups, read

_COUNTERS = "/proc/vmstat"  # counts those that a control group's own limit made it kill, too
_TOGETHER = 30.0  # seconds: a large process needs some to end, and others are seen first
_LOOKS = 15.0  # seconds from one to the next
_INIT = "pid:[4026531836]"  # the namespace that the kernel numbers processes by in its log
_LOG, _LOG_SIZE = 3, 1 << 18  # the action of syslog(2) that returns the last bytes
_NO_LIMIT = 1 << 60  # bytes: what version 1 says where there is none


def count_of(text: str, name: str) -> int:
    """A counter in a file of the kernel with a name and a number in each line."""
    for line in text.splitlines():
        found, _, value = line.partition(" ")
        if found == name and value.strip().isdigit():
            return int(value)
    return 0  # before Linux 4.13


class OutOfMemory:
    """Counts from one look to the next: an older kill is not the reason of a later death."""

    def __init__(self) -> None:
        self._known = count_of(read(_COUNTERS), "oom_kill")
        self._hits = dict(_hits())
        self._left, self._until = 0, 0.0  # kills not explained yet, and until when they may be

    def watch(self, call_later: Callable[[float, Callable[[], None]], object]) -> None:
        """Look now and then: the kernel says how many it has killed, and not when."""
        self._look()
        call_later(_LOOKS, lambda: self.watch(call_later))

    def _look(self) -> None:
        kills = count_of(read(_COUNTERS), "oom_kill")
        if kills > self._known:
            self._left, self._until = kills - self._known, time.monotonic() + _TOGETHER
            self._known = kills

    def explain(self, pid: int, killed: bool) -> str:
        """Describe a possible reason of a death; to be called at each.

        Args:
            pid: Of the process that has ended.
            killed: Whether that was by a SIGKILL of unknown origin.

        Returns:
            Empty if there was none, or the kernel's log says that it was another process.
        """
        self._look()
        if not killed or not self._left or time.monotonic() > self._until or _was_other(pid):
            return ""
        self._left -= 1  # one for each
        before, self._hits = self._hits, dict(_hits())
        for group, hits in self._hits.items():
            if hits > before.get(group, 0) and (limit := _limit(group)):
                return at_limit(group, limit)
        return (
            "the machine had run out of memory: its out-of-memory killer ended processes meanwhile,"
            " probably this one"
        )


def at_limit(group: str, limit: int) -> str:
    """Say that a control group was at its limit, in bytes, when processes of it were killed."""
    return (
        f"the processes of the control group {group} had used all of the {limit / 1e6:,.0f} MB that"
        " it may have: the out-of-memory killer ended some, probably this one"
    )


def _was_other(pid: int) -> bool:
    """Return whether the kernel's log has kills for memory, and none of this process."""
    log = _kernel_log() if os.readlink("/proc/self/ns/pid") == _INIT else b""
    return b"Killed process " in log and b"Killed process %d " % pid not in log


def _kernel_log() -> bytes:
    """The end of it; empty where this user may not read it."""
    import ctypes  # 10 ms, for those few that get a SIGKILL

    log = ctypes.create_string_buffer(_LOG_SIZE)
    return log.raw[: max(0, ctypes.CDLL(None).klogctl(_LOG, log, _LOG_SIZE))]


def _hits() -> Iterator[tuple[str, int]]:
    """The control groups of this process, and how often each was at its limit."""
    for group in control_groups("memory"):
        at_limit = count_of(read(f"{group}/memory.events.local"), "oom")
        yield group, at_limit or int(read(f"{group}/memory.failcnt") or 0)


def _limit(group: str) -> int:
    """The bytes that it may have; 0 for no limit."""
    text = read(f"{group}/memory.max") or read(f"{group}/memory.limit_in_bytes")
    return int(text) if text.strip().isdigit() and int(text) < _NO_LIMIT else 0
