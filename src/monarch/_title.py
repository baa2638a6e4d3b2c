"""The title of a process in `ps` and `top`.

Written to /proc, which needs neither C code nor privileges.
"""

from __future__ import annotations

import os

from ._proc_stat import ARG_END, ARG_START, stat_of

_area: tuple[int, int] | None = None  # a fork has it where its parent has it


def set_title(title: str) -> None:
    """Show this process as `title`, in /proc/self/comm (first 15 bytes) and its command line.

    The text takes the place of the arguments in memory, so a longer one is cut. Where the system
    forbids it, nothing changes.
    """
    try:  # each new proc comes here, and `suppress` costs it three calls
        _write("/proc/self/comm", title.encode()[:15].decode(errors="ignore").encode())
        start, end = _arguments()
        text = title.encode()[: end - start - 2]
        # no NUL at the very end: so the kernel knows that this is a title, and shows it up to its
        # first NUL
        _write("/proc/self/mem", text.ljust(end - start - 1, b"\0") + b" ", start)
    except (OSError, ValueError, IndexError):
        pass


def _arguments() -> tuple[int, int]:
    global _area
    if _area is None:
        fields = stat_of(os.getpid())
        _area = int(fields[ARG_START]), int(fields[ARG_END])
    return _area


def _write(path: str, data: bytes, offset: int = 0) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        if offset:
            os.lseek(fd, offset, os.SEEK_SET)
        os.write(fd, data)
    finally:
        os.close(fd)
