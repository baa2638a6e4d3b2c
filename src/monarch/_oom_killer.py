"""The detector of kills by the kernel for lack of memory, which look like any other SIGKILL."""

from __future__ import annotations

from collections.abc import Iterator

from ._guards.surroundings import control_groups, read

_COUNTERS = "/proc/vmstat"  # counts those that a control group's own limit made it kill, too
_NO_LIMIT = 1 << 60  # bytes: what version 1 says where there is none


def count_of(text: str, name: str) -> int:
    """A counter in a file of the kernel with a name and a number in each line."""
    for line in text.splitlines():
        found, _, value = line.partition(" ")
        if found == name and value.strip().isdigit():
            return int(value)
    return 0  # before Linux 4.13


class OutOfMemory:
    """Counts from its creation on."""

    def __init__(self) -> None:
        self._known = count_of(read(_COUNTERS), "oom_kill")
        self._hits = dict(_hits())

    def explain(self) -> str:
        """Describe a possible reason of a SIGKILL; empty if none is found, or all are explained."""
        if count_of(read(_COUNTERS), "oom_kill") <= self._known:
            return ""
        self._known += 1  # one for each: a SIGKILL much later has another sender
        before, self._hits = self._hits, dict(_hits())
        for group, hits in self._hits.items():
            if hits > before.get(group, 0) and (limit := _limit(group)):
                return (
                    f"the processes of the control group {group} had used all of the"
                    f" {limit / 1e6:,.0f} MB that it may have: the out-of-memory killer ended some,"
                    " probably this one"
                )
        return (
            "the machine had run out of memory: its out-of-memory killer ended processes meanwhile,"
            " probably this one"
        )


def _hits() -> Iterator[tuple[str, int]]:
    """The control groups of this process, and how often each was at its limit."""
    for group in control_groups("memory"):
        at_limit = count_of(read(f"{group}/memory.events.local"), "oom")
        yield group, at_limit or int(read(f"{group}/memory.failcnt") or 0)


def _limit(group: str) -> int:
    """The bytes that it may have; 0 for no limit."""
    text = read(f"{group}/memory.max") or read(f"{group}/memory.limit_in_bytes")
    return int(text) if text.strip().isdigit() and int(text) < _NO_LIMIT else 0
