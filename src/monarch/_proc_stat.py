"""The kernel's records of a process of this machine, ``/proc/PID/stat`` and ``status``."""

from __future__ import annotations

STATE, PARENT, SESSION, MAJOR_FAULTS, USER_TICKS, SYSTEM_TICKS, THREADS = 0, 1, 3, 9, 11, 12, 17
STARTED, VIRTUAL, RESIDENT = 19, 20, 21  # in ticks since the machine began; in bytes; in pages
ARG_START, ARG_END, EXIT_STATUS = 45, 46, 49
_MOST = 4096  # bytes: 52 numbers and a name


def stat_of(pid: int) -> list[str]:
    """The fields behind the name of a process; none of one that is gone.

    Its name is any bytes, up to 15.
    """
    try:
        # one read, without a buffer: asked of each process of a machine
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(_MOST).rpartition(b")")[2].decode().split()
    except OSError:
        return []


def status_field(process: int | str, name: str) -> str:
    """A field of ``/proc/PID/status``; empty where it has none.

    Args:
        process: Its id; or a thread of it, as ``PID/task/TID``.
        name: Of the field.

    Raises:
        OSError: The process or thread is gone.
    """
    with open(f"/proc/{process}/status", errors="replace") as file:
        # the name of a process may be cut within a letter
        found = (line for line in file if line.startswith(f"{name}:"))
        return next(found, "").partition(":")[2].strip()
