"""Finding and ending the processes of a job on this machine.

It does not matter which program started them, or what became of their parents.

A job marks its workers with a variable in their environment, which everything they start inherits.
So its processes are those that have the mark, and all in a session that one of them leads, as a
process may clear its environment. A process number alone is never trusted: it may belong to
another process by now.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from ..._proc_stat import SESSION, STATE, stat_of
from ...errors import JobError

TAG = "MONARCH_JOB"
"""Environment variable: the `apply_id` of the job that a process belongs to."""

GRACE = 2.0  # seconds from SIGTERM to SIGKILL
_KILL_BOUND = 10.0  # seconds in which the kernel must have ended what got SIGKILL
_ROUND = 0.5  # seconds until it is looked again for processes that were started meanwhile


class _Process(NamedTuple):
    pid: int
    session: int
    tagged: bool


def is_tagged(pid: int, job: str) -> bool:
    """Check whether a process lives and belongs to the job. A zombie has ended."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:
            return f"{TAG}={job}".encode() in environ.read().split(b"\0")
    except OSError:  # gone, or of another user
        return False


def find(job: str) -> set[int]:
    """The processes of a job, by its `apply_id`; without the calling one."""
    return _members(job, _sessions(job))


def end(job: str, grace: float = GRACE) -> None:
    """End the processes of a job: SIGTERM, then SIGKILL, until none is left.

    Args:
        job: Its `apply_id`.
        grace: Seconds for those that handle SIGTERM.

    Raises:
        JobError: Some do not end even so, as can be where a driver or a file system hangs.
    """
    sessions = _sessions(job)  # now: once its leader is gone, a session can't be told from others
    # leaders first: a script that sees its command end goes on with the next one
    _signal(
        sorted(_members(job, sessions), key=lambda pid: pid not in sessions), signal.SIGTERM, grace
    )
    give_up = time.monotonic() + _KILL_BOUND
    while left := _members(job, sessions):
        if time.monotonic() > give_up:
            raise JobError(
                f"processes {sorted(left)} of a job did not end within {_KILL_BOUND:g} s of SIGKILL"
            )
        _signal(left, signal.SIGKILL, _ROUND)


def reap(pid: int, timeout: float = 0.0) -> int | None:
    """The exit status of a child that has ended, as `subprocess` gives it.

    It is None for a process that lives, or that is no child.

    Args:
        pid: A process.
        timeout: Seconds to wait for its end, whosever child it is.
    """
    if timeout:
        _await_end(pid, timeout)
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # another thread may have been faster
        return None
    return os.waitstatus_to_exitcode(status) if ended else None


def _await_end(pid: int, timeout: float) -> None:
    """Wait for the end of a process, for at most `timeout` seconds."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:  # gone; or its number is that of a thread by now
        return
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll(timeout * 1000)
    finally:
        os.close(fd)


def _signal(pids: Iterable[int], number: signal.Signals, timeout: float) -> None:
    """Send a signal, and wait for the end of those that got it, for at most `timeout` seconds."""
    waiting: dict[int, int] = {}
    try:
        for pid in pids:
            try:
                fd = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            waiting[fd] = pid
            try:
                signal.pidfd_send_signal(fd, number)
            except (ProcessLookupError, PermissionError):
                continue
        _wait(waiting, timeout)
    finally:
        for fd in waiting:
            os.close(fd)


def _wait(pidfds: dict[int, int], timeout: float) -> None:
    poll = select.poll()
    for fd in pidfds:
        poll.register(fd, select.POLLIN)
    waiting, end = dict(pidfds), time.monotonic() + timeout
    while waiting and (rest := end - time.monotonic()) > 0:
        for fd, _ in poll.poll(rest * 1000):
            poll.unregister(fd)
            reap(waiting.pop(fd))


def _sessions(job: str) -> set[int]:
    return {
        process.pid for process in _scan(job) if process.tagged and process.session == process.pid
    }


def _members(job: str, sessions: Collection[int]) -> set[int]:
    members = {
        process.pid for process in _scan(job) if process.tagged or process.session in sessions
    }
    return members - {os.getpid()}


def _scan(job: str) -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            pid = int(name)
            stat = stat_of(pid)
            if stat and stat[STATE] != "Z":
                yield _Process(pid, int(stat[SESSION]), is_tagged(pid, job))
