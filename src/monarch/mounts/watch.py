"""Notices of the kernel of changed names in folders.

They come from inotify, for which Python has no module.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
import time
from collections.abc import Callable

from ..actor import SupervisionError

_MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x2, 0x4, 0xC0, 0x100, 0x200
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_MASK = _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE
_EVENT = struct.Struct("iIII")
_BATCH = 0.05  # seconds for which changes are gathered
_MOST = 4096  # folders; more are looked at again when their time is over

Changes = dict[str, set[str]]


class FolderWatch:
    """Tells of changes in folders.

    It says nothing of those that it can't see, as where another machine writes to a shared
    disk.

    Args:
        tell: Called on a thread of its own: by folder the names in it that have changed, or are
            gone, or new; None for any.
    """

    def __init__(self, tell: Callable[[Changes | None], object]) -> None:
        self._tell = tell
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_CLOEXEC)
        self._folders: dict[int, str] = {}
        self._watched: set[str] = set()
        if self._fd >= 0:
            threading.Thread(target=self._run, name="monarch-watch", daemon=True).start()

    def add(self, folder: str, path: str) -> None:
        """Watch a folder, before it is looked at.

        Args:
            folder: What it is called when it is told of.
            path: Where it is.
        """
        if self._fd < 0 or len(self._watched) >= _MOST:
            return
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(path), _MASK)
        if number >= 0:
            self._folders[number] = folder
            self._watched.add(folder)

    def __contains__(self, folder: str) -> bool:
        return folder in self._watched

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while True:
            changes = self._read()
            end = time.monotonic() + _BATCH
            while changes is not None and poll.poll(max(0.0, end - time.monotonic()) * 1000):
                more = self._read()
                if more is None:
                    changes = None
                else:
                    for folder, names in more.items():
                        changes.setdefault(folder, set()).update(names)
            try:
                self._tell(changes)
            except SupervisionError:  # the other side has gone
                return

    def _read(self) -> Changes | None:
        data, offset = os.read(self._fd, 1 << 16), 0
        changes: Changes = {}
        while offset < len(data):
            number, mask, _, size = _EVENT.unpack_from(data, offset)
            offset += _EVENT.size + size
            if mask & _OVERFLOW:
                return None
            folder = self._folders.get(number)
            if mask & _IGNORED:  # it is gone, as is the watch
                self._watched.discard(self._folders.pop(number, ""))
            elif folder is not None:
                name = os.fsdecode(data[offset - size : offset].rstrip(b"\0"))
                changes.setdefault(folder, set()).add(name)
        return changes
