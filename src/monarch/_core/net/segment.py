"""Shared-memory segments: the lane for large buffers between processes of one host.

The sender writes the buffers into an anonymous memory file (one copy) and passes its descriptor with the message; each
receiver maps it copy-on-write, so it may write to what it got and nobody else sees that. There is no name and no file:
the kernel frees the memory with the last descriptor or mapping, whoever dies first.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from ..wire.frame import Bytes, segment_offsets

SEGMENT_SIZE = 256 * 1024
"""Messages whose buffers add up to at least this many bytes take the lane; below, copying through the socket is as fast."""


class Segment:
    """A written segment; its descriptor is closed with the last reference to this object."""

    __slots__ = ("fd",)

    def __init__(self, buffers: Sequence[Bytes]) -> None:
        offsets, size = segment_offsets([len(buffer) for buffer in buffers])
        self.fd = os.memfd_create("monarch", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.fd, size)
            for offset, buffer in zip(offsets, buffers, strict=True):
                _write(self.fd, memoryview(buffer), offset)
        except BaseException:
            os.close(self.fd)
            self.fd = -1
            raise

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def make_segment(buffers: Sequence[Bytes]) -> Segment | None:
    """A segment with these buffers, or None where they are small or the system has no room: the socket carries them."""
    if sum(map(len, buffers)) < SEGMENT_SIZE:
        return None
    try:
        return Segment(buffers)
    except OSError:
        return None


def map_segment(fd: int) -> memoryview:
    """The memory behind a received descriptor, private to this process when written; closes `fd`."""
    try:
        return memoryview(mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE))
    finally:
        os.close(fd)


def _write(fd: int, data: memoryview, offset: int) -> None:
    while data:
        written = os.pwrite(fd, data, offset)
        data, offset = data[written:], offset + written
