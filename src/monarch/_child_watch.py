"""Events of child processes from the kernel: stopped, continued, ended."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ._proc_stat import EXIT_STATUS, STATE, stat_of

if TYPE_CHECKING:
    import subprocess

PR_SET_PDEATHSIG = 1  # of `prctl`: the signal that the kernel sends when the parent ends
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


class Lifeline:
    """Has the kernel continue a child that is stopped when this process ends.

    From its first moment on: `PR_SET_PDEATHSIG` is for code of the child's own to ask for.

    Attributes:
        fd: What the child inherits, and the caller closes.
    """

    def __init__(self) -> None:
        self.fd, alive = os.pipe()
        self._alive = os.fdopen(alive, "wb", 0)

    def tie(self, child: subprocess.Popen[bytes]) -> None:
        """Hold until `child` is left as a context, which closes what it has as its `stdin`."""
        fcntl.fcntl(self.fd, fcntl.F_SETOWN, child.pid)
        fcntl.fcntl(self.fd, fcntl.F_SETSIG, signal.SIGCONT)
        fcntl.fcntl(self.fd, fcntl.F_SETFL, os.O_ASYNC)
        child.stdin = self._alive


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
