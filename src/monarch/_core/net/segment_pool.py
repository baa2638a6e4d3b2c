"""Memory files that are written again once their former content is not used any more.

Fresh memory is dear: the kernel takes some 50 ms to find, clear and fill 128 MB, and 20 ms to fill
memory that is there. So the file of a large segment is kept for a while, and for the next.

Receivers need not say when they are done: each message gets its own opening of the file, and the
kernel gives a write lease only on a file that no other process has open. An opening lives in the
message on its way and in the mapping of each receiver, and nowhere else; the kernel closes it for a
process that dies. Where there are no leases, nothing is kept.

A file is let go once it has not been used for `_KEEP` seconds, so that only who sends large
messages all the time holds memory for them: `_LIMIT` bytes at most.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
import time
from collections.abc import Callable, Sequence

from ..._copying import copy
from ..wire.frame import Bytes, segment_offsets
from .segment import Segment, make_segment, new_file, warn_of_shortage, write_file

POOLED_SIZE = 1024 * 1024
"""Bytes from which on a file is kept."""

_LIMIT = 512 * 1024 * 1024
_KEEP = 0.5  # seconds

CallLater = Callable[[float, Callable[[], None]], object]


class NoLeases(Exception):
    """This system does not tell whether a file is in use."""


class PooledSegment(Segment):
    """An opening of a pooled file, closed with the last reference to this object."""

    __slots__ = ()

    def __init__(self, file: _File) -> None:
        self.fd = -1
        self.fd = _open_again(file.fd)


class _File:
    """One memory file, through an opening that is not passed to anybody."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.fd = -1
        self.used = 0.0  # when it was last written
        self._memory: mmap.mmap | None = None
        first = new_file(size)
        try:
            # leases count the openings by name, which the first is not
            self.fd = _open_again(first)
        finally:
            os.close(first)

    def is_free(self) -> bool:
        """Return whether no message and no receiver uses the segment.

        Raises:
            NoLeases: There is no way to know.
        """
        try:
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            # given back at once: it was the answer that counted, and an opening would break a lease
            # with a signal (SIGIO, which ends a process)
            fcntl.fcntl(self.fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return False
            raise NoLeases from error
        return True

    def write(self, buffers: Sequence[Bytes], offsets: Sequence[int]) -> None:
        """Fresh memory is filled quickest by `pwrite`, which need not clear it first; later a
        mapping saves the calls.
        """
        again, self.used = bool(self.used), time.monotonic()
        if not again:
            write_file(self.fd, buffers, offsets)
            return
        if self._memory is None:
            self._memory = mmap.mmap(self.fd, self.size, flags=mmap.MAP_SHARED | _POPULATE)
        memory = memoryview(self._memory)
        for offset, buffer in zip(offsets, buffers, strict=True):
            copy(memory[offset : offset + len(buffer)], memoryview(buffer))

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


_POPULATE = getattr(mmap, "MAP_POPULATE", 0x8000)  # has a name since Python 3.10.1


class SegmentPool:
    """The files that this process keeps; for any thread.

    Args:
        call_later: Calls a function after so many seconds, to let go of files that were not used
            again.
    """

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self.forget()

    def forget(self) -> None:
        """Drop all kept segments: at the end, and in a forked child, as they are its parent's."""
        self._lock = threading.Lock()
        self._files: list[_File] = []
        self._trimming = False
        self._useless = False

    def make(self, buffers: Sequence[Bytes]) -> Segment | None:
        """As `make_segment`, from memory that is there already, if there is any that fits."""
        offsets, size = segment_offsets([len(buffer) for buffer in buffers])
        if size < POOLED_SIZE or self._useless:
            return make_segment(buffers)
        try:
            file = self._take(size)
            if file is None:
                return make_segment(buffers)
            file.write(buffers, offsets)
            segment = PooledSegment(file)
        except OSError as error:
            warn_of_shortage(error)
            return None
        with self._lock:
            self._files.append(file)
            begin, self._trimming = not self._trimming, True
        if begin:
            self._call_later(_KEEP, self._trim)
        return segment

    def _take(self, size: int) -> _File | None:
        """An unused file: a kept one of fitting size, or a new one; None if no more may be."""
        with self._lock:
            try:
                for file in self._files:
                    if size <= file.size <= 2 * size and file.is_free():
                        self._files.remove(file)
                        return file
            except NoLeases:
                self._useless = True
                return None
            kept = sum(file.size for file in self._files)
        return _File(size) if kept + size <= _LIMIT else None

    def _trim(self) -> None:
        past = time.monotonic() - _KEEP
        with self._lock:
            gone = [file for file in self._files if file.used <= past]
            self._files = [file for file in self._files if file.used > past]
            self._trimming = bool(self._files)
        # out of the lock: this closes the files, and the kernel frees their memory
        gone.clear()
        if self._trimming:
            self._call_later(_KEEP, self._trim)


def _open_again(fd: int) -> int:
    return os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
