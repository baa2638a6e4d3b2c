"""Leftovers of ended processes: programs that an actor has started, or forked, and not ended.

Each proc leads a process group of its own, so what it starts is in that group, unless it has asked
for another (``setsid``; ``start_new_session=True`` of `subprocess`), which is how a program that is
to stay says so. When a proc has ended, its group gets SIGTERM, and SIGKILL if a process is left
after a moment. The moment is for helpers that clean up after others, as the resource tracker of
`multiprocessing` does: it ignores SIGTERM, and ends when those that it looks after have.

Why the group, and not all descendants? Those that are orphans can't be told from daemons that were
meant to go on, and are found only by reading all of ``/proc``. A group costs one system call for
each proc.

The agent sees to that, also when it has lost its spawner; if the agent is lost, the spawner does.
Should both be killed at the same moment, neither does: no other process knows the groups, and a
helper that did would be one more process of every program.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress

from ..net.poller import Poller

_LOOK = 0.02  # seconds between two looks at a group that has been told to end
# after which its remaining processes are killed, and as many more in which the kernel ends them
_LOOKS = 50


class Leftovers:
    """Ends process groups that have lost their leader.

    Args:
        poller: Its thread runs this.
    """

    def __init__(self, poller: Poller) -> None:
        self._poller = poller
        self._ending: set[int] = set()

    def end(self, group: int, done: Callable[[], None]) -> None:
        """End the rest of a process group that has lost its leader; then call `done`."""
        if not signal_group(group, signal.SIGTERM):  # which is how it is nearly always
            done()
            return
        self._ending.add(group)
        self._look(group, 2 * _LOOKS, done)

    def kill(self, groups: Iterable[int]) -> None:
        """Kill these groups, and those that have yet to end, at the end of this process."""
        for group in {*self._ending, *groups}:
            signal_group(group, signal.SIGKILL)

    def _look(self, group: int, looks: int, done: Callable[[], None]) -> None:
        # a number is not used again while it is that of a group, and not soon after
        if looks and signal_group(group, signal.SIGKILL if looks == _LOOKS else 0):
            self._poller.call_later(_LOOK, lambda: self._look(group, looks - 1, done))
            return
        self._ending.discard(group)
        done()


def signal_group(group: int, number: int) -> bool:
    """Signal a process group, and return whether it had members."""
    # of another user: a program that has become one
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        return True
    return False
