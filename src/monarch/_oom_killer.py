"""The detector of kills by the kernel for lack of memory, which look like any other SIGKILL."""

from __future__ import annotations

_COUNTERS = "/proc/vmstat"  # counts those that a control group's own limit made it kill, too


def count_kills(vmstat: str) -> int:
    """The number of processes ended by the out-of-memory killer, from the text of /proc/vmstat."""
    for line in vmstat.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.strip().isdigit():
            return int(value)
    return 0  # before Linux 4.13


class OutOfMemory:
    """Counts from its creation on."""

    def __init__(self) -> None:
        self._known = _read()

    def explain(self) -> str:
        """Describe a possible reason of a SIGKILL; empty if none is found, or all are explained."""
        if _read() <= self._known:
            return ""
        self._known += 1  # one for each: a SIGKILL much later is somebody else's
        return (
            "the machine had run out of memory: its out-of-memory killer ended processes meanwhile,"
            " probably this one"
        )


def _read() -> int:
    try:
        with open(_COUNTERS) as file:
            return count_kills(file.read())
    except OSError:  # a sandbox without it
        return 0
