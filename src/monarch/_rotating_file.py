"""A file that is put aside when it is full, and begun again.

That of a rank's output, and that of what the engine notes.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

from ._ours import Folder


class RotatingFile:
    """A file of whole lines.

    Args:
        folder: Opens the folder that it is in.
        name: Its name; those put aside have ``.1`` and so on behind it.
        size: Bytes after which it is put aside.
        count: How many files there are, with the current one.

    Attributes:
        locked: False if another process writes to it.
    """

    def __init__(self, folder: Callable[[], Folder], name: str, size: int, count: int) -> None:
        self._folder = folder
        self._name = name
        self._most = size
        self._count = count
        with folder() as opened:
            self._open(opened)

    def _open(self, folder: Folder) -> None:
        self._fd = folder.open(self._name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.locked = True
        except BlockingIOError:
            self.locked = False
        except OSError:  # a file system without locks: nothing tells who else writes there
            self.locked = True
        try:
            self._size = os.fstat(self._fd).st_size
            # who wrote here before may have been killed in the middle of a line
            self._torn = bool(self._size) and os.pread(self._fd, 1, self._size - 1) != b"\n"
        except OSError:
            self.close()
            raise

    @property
    def is_gone(self) -> bool:
        """True if the file was removed."""
        return os.fstat(self._fd).st_nlink == 0

    def write(self, text: str) -> None:
        """Append whole lines; those for which this file has no room begin the next one."""
        while text:
            room = self._most - self._size  # characters: as exact as a bound needs to be
            end = len(text) if len(text) <= room else text.rfind("\n", 0, room) + 1
            if not end and self._size:
                self._rotate()
                continue
            end = end or text.find("\n") + 1  # a line that is longer than a file has one of its own
            self._write(text[:end].encode(errors="replace"))
            text = text[end:]

    def _write(self, data: bytes) -> None:
        rest = memoryview(b"\n" + data if self._torn else data)
        while rest:
            written = os.write(self._fd, rest)
            rest = rest[written:]
            self._size += written
        self._torn = False

    def _rotate(self) -> None:
        names = [self._name, *(f"{self._name}.{number}" for number in range(1, self._count))]
        with self._folder() as folder:
            for old, new in reversed([*pairwise(names)]):
                with suppress(FileNotFoundError):
                    folder.move(old, new)
            if self._count == 1:
                folder.remove(self._name)
            self.close()
            self._open(folder)

    def close(self) -> None:
        """Write no longer."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
