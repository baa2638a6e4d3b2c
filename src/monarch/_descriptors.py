"""How many descriptors this process may have, and some that it keeps for when it has no other."""

from __future__ import annotations

import os

_RESERVE = 8
_MOST = 1 << 20  # beyond it, programs that look at each possible descriptor take seconds


def allow_many() -> None:
    """Raise the soft limit of descriptors to the hard one; it is low for users of `select`."""
    import resource  # a client has no need for it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard and soft < _MOST:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _MOST), hard))


def none_left() -> str:
    """Describe a shortage of descriptors. Imports nothing, as an import takes a descriptor."""
    return (
        f"no descriptor is left in the process (limit {os.sysconf('SC_OPEN_MAX')}, see `ulimit -n`)"
    )


class Reserve:
    """Descriptors for nothing, each of which can be given up for one that is needed.

    For one thread.
    """

    def __init__(self) -> None:
        self._spare: list[int] = []

    def __len__(self) -> int:
        return len(self._spare)

    def fill(self) -> None:
        """Take as many as there shall be, if they are to be had."""
        try:
            while len(self._spare) < _RESERVE:
                self._spare.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass

    def give_up_one(self) -> bool:
        """Close the spare descriptor, and return whether there was one."""
        if self._spare:
            os.close(self._spare.pop())
            return True
        return False

    def close(self) -> None:
        while self.give_up_one():
            pass
