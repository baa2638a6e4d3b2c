"""Events of child processes from the kernel: stopped, continued, ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

from ._proc_stat import EXIT_STATUS, STATE, stat_of

_CHANGES = os.WNOHANG | os.WUNTRACED | os.WCONTINUED


class ChildWatch:
    """A descriptor that becomes readable when a child of this process changes.

    For the main thread of a process that runs no user code: it takes over SIGCHLD.
    """

    def __init__(self) -> None:
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # Python leaves out SA_NOCLDSTOP, so stops are told, too
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def clear(self) -> None:
        """Drain the wake-up, when it was readable, before asking for the changes."""
        with suppress(BlockingIOError):
            os.read(self.fd, 4096)

    @staticmethod
    def forget() -> None:
        """Forget all children, in a forked child, which has its own."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def changes(pid: int = -1) -> Iterator[tuple[int, int]]:
    """Iterate over state changes of a child, or of all: pid and status as `waitpid` gives it.

    The kernel keeps only the last of several changes: a stop that is over may not be told, or the
    same twice in a row.
    """
    with suppress(ChildProcessError):
        while (change := os.waitpid(pid, _CHANGES))[0]:
            yield change


def is_stopped(pid: int) -> bool:
    """Return whether a signal has stopped a process (not a debugger that holds it)."""
    return stat_of(pid)[:1] == ["T"]


def is_held(pid: int) -> bool:
    """Return whether a debugger holds a process, or the freezer of its control group may."""
    return stat_of(pid)[:1] in (["t"], ["D"])


def unreaped_status(pid: int) -> int | None:
    """The exit status of a process not yet waited for; None if unknown or still running."""
    fields = stat_of(pid)
    return int(fields[EXIT_STATUS]) if fields and fields[STATE] in "ZX" else None
