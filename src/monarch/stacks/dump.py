"""The stacks of another process of this user, without its help.

They come by a signal that makes `faulthandler` write them, or by py-spy.

What ends a wait: the handler of the signal has returned, which the kernel says, or `_LIMIT`; py-spy
has ended, or was killed after `_PY_SPY_LIMIT` seconds. A request that comes while others are being
looked at waits for them, `_LIMIT` each.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from .._commands import run_caught
from .._proc_stat import STATE, stat_of, status_field
from .._stack_dump import FILE, SIGNAL
from .model import ThreadStack
from .traces import parse_faulthandler, parse_py_spy

_LIMIT = 1.0  # seconds for a dump, which takes less than one of a thousand
_LOOK_AGAIN = 0.002  # seconds
_PY_SPY_LIMIT = 15.0  # seconds; symbols of large libraries take some

_BIT = 1 << (SIGNAL - 1)
# a process has one file, from which two would take each other's text
_one_at_a_time = threading.Lock()


def state_of(pid: int) -> str:
    """Return the kernel's state of a process in words; empty if it runs, or sleeps, as usual."""
    stat = stat_of(pid)
    return {
        "T": "is stopped (SIGSTOP, or Ctrl-Z)",
        "t": "is stopped by a debugger",
        "Z": "has ended",
        "X": "has ended",
        "D": "is in a system call that nothing interrupts: a disk, a network file system, a driver",
    }.get(stat[STATE] if stat else "X", "")


def by_signal(pids: Sequence[int]) -> dict[int, tuple[ThreadStack, ...]]:
    """The stacks of those of these processes that take the signal; other processes get none."""
    with _one_at_a_time:
        return _by_signal(pids)


def _by_signal(pids: Sequence[int]) -> dict[int, tuple[ThreadStack, ...]]:
    dumps = []
    for pid in pids:
        with suppress(OSError, ValueError):  # it has just ended, or catches no such signal
            dumps.append(_Dump(pid))
    end = time.monotonic() + _LIMIT
    waiting = list(dumps)
    while waiting and time.monotonic() < end:
        time.sleep(_LOOK_AGAIN)
        waiting = [each for each in waiting if not each.is_complete()]
    found = {each.pid: each.read() for each in dumps if each not in waiting}
    for each in dumps:
        each.close()
    return {pid: threads for pid, threads in found.items() if threads}


class _Dump:
    """Raises ValueError where the process does not take the signal."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        # pins the process: from here on its id can't come to mean another one
        self._pidfd = os.pidfd_open(pid)
        self._file = -1
        try:
            self._file = os.open(_find_file(pid), os.O_RDWR)
            self._blocking = _blocking(pid)
            if not _has_bit(pid, "SigCgt"):
                raise ValueError(f"process {pid} does not catch signal {SIGNAL}")
            os.ftruncate(self._file, 0)
            signal.pidfd_send_signal(self._pidfd, SIGNAL)
        except BaseException:
            self.close()
            raise

    def is_complete(self) -> bool:
        """The kernel blocks the signal in a thread while that handles it."""
        try:
            pending = _has_bit(self.pid, "ShdPnd")
            return not pending and _blocking(self.pid) <= self._blocking
        except OSError:
            return True  # it has ended

    def read(self) -> tuple[ThreadStack, ...]:
        size = os.fstat(self._file).st_size
        text = os.pread(self._file, size, 0).lstrip(b"\0")  # it writes behind what it wrote last
        os.ftruncate(self._file, 0)
        return parse_faulthandler(text.decode(errors="replace"))

    def close(self) -> None:
        for fd in (self._file, self._pidfd):
            if fd >= 0:
                os.close(fd)


def _find_file(pid: int) -> str:
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        with suppress(OSError):
            if os.readlink(path).startswith(f"/memfd:{FILE}"):
                return path
    raise ValueError(f"process {pid} has no file for its stacks")


def _blocking(pid: int) -> set[str]:
    """Threads that block the signal."""
    threads = set()
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(OSError):
            if _has_bit(f"{pid}/task/{thread}", "SigBlk"):
                threads.add(thread)
    return threads


def _has_bit(process: int | str, mask: str) -> bool:
    """Return whether the signal is in a mask of a process or thread; see `status_field`."""
    return bool(int(status_field(process, mask) or "0", 16) & _BIT)


def py_spy() -> str | None:
    """The program py-spy, if it is installed: on the path, or with the package."""
    found = shutil.which("py-spy")
    if found is None:
        from importlib import metadata

        with suppress(metadata.PackageNotFoundError):
            package = metadata.distribution("py-spy")
            for file in package.files or ():
                if file.name == "py-spy":
                    return str(package.locate_file(file))
    return found


def by_py_spy(
    program: str, pid: int, native: bool = False, stopped: bool = False
) -> tuple[ThreadStack, ...]:
    """The stacks of a process as py-spy sees them.

    Args:
        program: Path of py-spy.
        pid: Process id.
        native: With the functions of C libraries.
        stopped: Whether the process is stopped already.

    Raises:
        ValueError: It could not look; the text says why.
    """
    return parse_py_spy(run_py_spy(program, pid, native, stopped, _PY_SPY_LIMIT))


def run_py_spy(program: str, pid: int, native: bool, stopped: bool, seconds: float) -> str:
    """Return the output of ``py-spy dump --json`` for a process.

    Raises:
        ValueError: It could not look, or not in so many seconds; the text says why.
    """
    options = [*(["--native"] if native else []), *(["--nonblocking"] if stopped else [])]
    command = [program, "dump", "--json", "--pid", str(pid), *options]
    try:
        done = run_caught(command, seconds)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(str(error)) from error
    if done.returncode:
        reason = done.stderr.strip().removeprefix("Error: ").partition("\n")[0]
        raise ValueError(reason or f"it ended with status {done.returncode}")
    return done.stdout
