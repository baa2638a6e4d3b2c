"""Shared-memory segments, which carry large buffers between processes of one host.

Connections make and map them (`connection`, `send_queue`, with files from `segment_pool`). The
sender writes the buffers into an anonymous memory file (one copy) and passes its descriptor with
the message. Each receiver maps it copy-on-write, so what it writes there stays its own. There is no
name and no file: the kernel frees the memory with the last descriptor or mapping, even if the
sender dies first.
"""

from __future__ import annotations

import functools
import mmap
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ..._lazy import lazy_logger
from ..wire.frame import Bytes, segment_offsets

logger = lazy_logger("monarch.net")

SEGMENT_SIZE = 256 * 1024
"""Messages with buffers of at least this many bytes in total take the lane; below, copying through
the socket is as fast.
"""


class Segment:
    """A written segment; its descriptor is closed with the last reference to this object."""

    __slots__ = ("fd",)

    def __init__(self, buffers: Sequence[Bytes]) -> None:
        offsets, size = segment_offsets([len(buffer) for buffer in buffers])
        self.fd = -1  # for `__del__`, should there be no descriptor left
        self.fd = new_file(size)
        write_file(self.fd, buffers, offsets)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


def new_file(size: int, name: str = "monarch") -> int:
    """An anonymous memory file.

    Args:
        size: In bytes.
        name: As others see it in ``/proc``.

    Raises:
        OSError: There is no room for it, or no descriptor is left.
    """
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, size)
    except BaseException:
        os.close(fd)
        raise
    return fd


def write_file(fd: int, buffers: Sequence[Bytes], offsets: Sequence[int]) -> None:
    """Write each buffer at its offset.

    Raises:
        OSError: There is no room.
    """
    for offset, buffer in zip(offsets, buffers, strict=True):
        data = memoryview(buffer)
        while data:
            # one call writes 2 GiB at most (0x7ffff000 bytes)
            written = os.pwrite(fd, data, offset)
            data, offset = data[written:], offset + written


def make_segment(buffers: Sequence[Bytes]) -> Segment | None:
    """A segment with these buffers; None, and the socket carries them, if small or no room."""
    if sum(map(len, buffers)) < SEGMENT_SIZE:
        return None
    try:
        return Segment(buffers)
    except OSError as error:
        warn_of_shortage(error)
        return None


_warned: set[int] = set()


def warn_of_shortage(error: OSError) -> None:
    """Once per kind: messages get through, but large ones take longer."""
    if error.errno not in _warned:
        _warned.add(error.errno or 0)
        logger.warning(
            "no shared memory for large messages, which take longer through the socket: %s",
            str(error),
        )


def map_segment(fd: int) -> memoryview:
    """The memory behind a received descriptor, private to this process when written; closes `fd`.

    It lives as long as any view or array onto it, and holds no descriptor: a program may keep more
    messages than it may have files.

    Raises:
        OSError, ValueError: It is no memory file, it is empty, or no address space is left.
    """
    try:
        if sys.version_info >= (3, 13):
            return memoryview(
                mmap.mmap(fd, 0, flags=mmap.MAP_PRIVATE, prot=_READ_WRITE, trackfd=False)
            )
        return _map_without_descriptor(fd)
    finally:
        os.close(fd)


_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE


def _map_without_descriptor(fd: int) -> memoryview:
    """Map a segment as `trackfd=False` does, which Python before 3.13 lacks."""
    import ctypes  # here, because only programs that receive large buffers should pay for it

    size = os.fstat(fd).st_size
    if not size:
        raise ValueError("cannot map an empty file")
    map_memory, unmap_memory = _system_calls()
    address = map_memory(None, size, _READ_WRITE, mmap.MAP_PRIVATE, fd, 0)
    if address == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    memory = (ctypes.c_char * size).from_address(address)
    # not at exit: arrays onto it may be used after that, and the kernel unmaps it with the process
    weakref.finalize(memory, unmap_memory, address, size).atexit = False
    return memoryview(memory).cast("B")


@functools.cache
def _system_calls() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """mmap and munmap."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return libc.mmap, libc.munmap
