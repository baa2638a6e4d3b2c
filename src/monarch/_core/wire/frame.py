"""Frames, the units on a socket. Bytes in, frames out.

Layout (little endian)::

    length u64 | kind u8 | flags u8 | 2 bytes unused | rank u32 | target u64 | sender u64 | request u64 | meta u32
    buffers u32 | meta bytes | one u64 size per buffer | payload | buffers

`length` counts everything after itself. One header serves all kinds, so that packing and parsing
are one struct call:

    ========  ==================================  ==========================================================
    kind      target                              rest
    ========  ==================================  ==========================================================
    HELLO     -                                   first frame of a connection; meta names the connecting proc
    CALL      actor id                            meta = method and geometry; request 0 = one-way
    REPLY     actor id that was called            request names the call; flags say what kind of answer
    PORT      port id                             a value sent to a `Port`
    CAST      actor id                            a call to processes of several hosts, see `routing.cast`
    REPLIES   -                                   the answers to a cast, combined; request says to which
    CLOSE     -                                   casts that no caller waits for any more
    GONE      -                                   a process, or a host, has ended; payload says why. Without a route: this
                                                  connection will, meta says why
    CREDIT    -                                   how many bytes the receiver has taken in, so far, in `request`
    PAUSE     actor or port id, the receiver's    flags 1: it holds all it may, send it no more; 0: it has room again
    DIAL      -                                   a host that cannot dial another asks to be dialed; the other answers
    ========  ==================================  ==========================================================

Cost of a small message: one allocation and one join to encode, two slices (copies) and one unpack
to decode. A frame larger than the read buffer is received straight into its own memory, so it is
copied once, by the kernel.
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Sequence
from struct import Struct

from ..._namedtuple import NamedTuple

HELLO, CALL, REPLY, PORT, CAST, REPLIES, CLOSE, GONE, CREDIT, DIAL, PAUSE = range(1, 12)

# flags of CALL
URGENT = 1  # overtakes queued messages: stop, supervision
EXPLICIT = 2  # the endpoint answers through a port
CANCEL = 16  # drop the call of the same number, if it has not begun
# flags of CAST, which has those of CALL, too
STANDING = 4  # hosts above watch over those below until it is closed
AGAIN = 8  # the root hands it down itself, as a host that passed it on is lost
# what a REPLY or PORT brings, in the place of flags; even, as values of a port keep the order of
# calls unless they are URGENT. A result; an ActorError; a failure of the actor; an exception to
# raise as is; a call that was dropped before it began
VALUE, ERROR, DEAD, EXCEPTION, CANCELLED = 0, 2, 4, 6, 8
# flags of any kind: its sender had printed something, which the client may not have shown yet
PRINTED = 32
# ... the meta begins with a route, see `routing.route`
ROUTED = 64
# ... the buffers are in a shared-memory segment; its descriptor came with the frame
SEGMENT = 128

NO_RANK = 0xFFFFFFFF
PROTOCOL_VERSION = 3

_HEADER = Struct("<QBBxxIQQQII")
_LENGTH = Struct("<Q")
HEADER_SIZE = _HEADER.size
_MUCH = 32 << 20  # bytes; less than that, the allocator uses again
_SMALL = 4096  # bytes up to which a copy is quicker than a view
FLAGS_AT = 9  # where the flags are in a frame
_RANK_AT = 12
READ_SIZE = 256 * 1024

Bytes = bytes | bytearray | memoryview


class Frame(NamedTuple):
    """One message. `payload` is a pickle; `buffers` are its out-of-band parts."""

    kind: int
    flags: int
    rank: int
    target: int
    sender: int
    request: int
    meta: bytes
    payload: Bytes
    buffers: Sequence[Bytes] = ()


def parting(reason: str) -> Frame:
    """The last frame of a connection, where it is ended although the process lives."""
    return Frame(GONE, 0, 0, 0, 0, 0, reason.encode(), b"")


new_frame: Callable[[tuple[int, int, int, int, int, int, bytes, Bytes, Sequence[Bytes]]], Frame]
new_frame = functools.partial(tuple.__new__, Frame)
"""`Frame(*fields)` without the Python function inside of it, for where each message passes."""


def encode(frame: Frame, inline: bool = True) -> tuple[bytes, int]:
    """The frame up to its buffers, and the number of bytes the whole frame takes.

    Args:
        inline: Whether the buffers follow on the stream; False when they travel in a shared-memory
            segment.
    """
    kind, flags, rank, target, sender, request, meta, payload, buffers = frame
    size = HEADER_SIZE + len(meta) + len(payload)
    if not buffers:
        head = _HEADER.pack(size - 8, kind, flags, rank, target, sender, request, len(meta), 0)
        return b"".join((head, meta, payload)), size
    sizes = [len(buffer) for buffer in buffers]
    size += 8 * len(sizes)
    total = size + sum(sizes) if inline else size
    head = _HEADER.pack(
        total - 8, kind, flags, rank, target, sender, request, len(meta), len(sizes)
    )
    return b"".join((head, meta, *map(_LENGTH.pack, sizes), payload)), total


pack_rank = Struct("<I").pack


def encode_around_rank(frame: Frame) -> tuple[bytes, bytes]:
    """A bufferless frame for several ranks: the bytes before the rank, and those behind it.

    A call to many is encoded once so, as the rank is all that differs.
    """
    data, _ = encode(frame)
    return data[:_RANK_AT], data[_RANK_AT + 4 :]


AROUND = 16 << 20
"""Bytes that a frame may be larger than what it carries, which is what `codec_max_frame_length`
limits: names, routes, the table of a cast to many processes.
"""


class FrameError(Exception):
    """The peer sent something that is not a frame: its fault, the connection is closed."""


def decode(data: bytes | memoryview, segment: memoryview | None = None) -> Frame:
    """The frame in `data`, which holds exactly one.

    Args:
        data: Header to last byte.
        segment: Shared memory that holds the buffers, where the frame is flagged `SEGMENT`.

    Raises:
        FrameError: Sizes in its header do not fit into it, or it has shared memory and no buffers.
    """
    _, kind, flags, rank, target, sender, request, meta_size, count = _HEADER.unpack_from(data)
    start = HEADER_SIZE + meta_size
    if start + 8 * count > len(data) or (segment is not None and not count):
        raise FrameError(
            f"a header that counts {meta_size} bytes and {count} buffers, in a frame of {len(data)}"
            " bytes"
        )
    meta = bytes(data[HEADER_SIZE:start])
    if not count and len(data) <= _SMALL:
        return new_frame((kind, flags, rank, target, sender, request, meta, data[start:], ()))
    data = memoryview(data)
    if not count:
        return new_frame((kind, flags, rank, target, sender, request, meta, data[start:], ()))
    sizes = [_LENGTH.unpack_from(data, start + 8 * i)[0] for i in range(count)]
    start += 8 * count
    if segment is not None:
        buffers, flags = split_segment(segment, sizes), flags & ~SEGMENT
        return Frame(kind, flags, rank, target, sender, request, meta, data[start:], buffers)
    first = len(data) - sum(sizes)
    if first < start:
        raise FrameError(f"buffers of {sum(sizes)} bytes do not fit a frame of {len(data)}")
    payload, buffers = data[start:first], []
    for size in sizes:
        part = data[first : first + size]
        # receivers may write to what they get, and arrays want their memory where numbers of their
        # type may lie
        buffers.append(memoryview(bytearray(part)) if data.readonly or first % _ALLOCATED else part)
        first += size
    return Frame(kind, flags, rank, target, sender, request, meta, payload, buffers)


ALIGNMENT = 64
_ALLOCATED = 16  # bytes to which memory of the interpreter is aligned


def segment_offsets(sizes: Sequence[int]) -> tuple[list[int], int]:
    """The place of each buffer in a segment (64-byte aligned), and the segment's size."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return offsets, end


def split_segment(segment: memoryview, sizes: Sequence[int]) -> list[memoryview]:
    """The buffers that lie in a segment written with `segment_offsets`."""
    offsets, end = segment_offsets(sizes)
    if end > len(segment):
        raise FrameError(f"buffers of {end} bytes do not fit a segment of {len(segment)}")
    return [segment[start : start + size] for start, size in zip(offsets, sizes, strict=True)]


class Decoder:
    """Cuts a byte stream into frames.

    Read into `space()` where that is not None and tell `filled`; otherwise read anywhere and `feed`
    what came.

    Args:
        limit: Largest frame accepted, in bytes.
    """

    __slots__ = ("_filled", "_large", "_limit", "_rest")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self._large: memoryview | None = None  # a frame larger than one read, received in place
        self._filled = 0

    def space(self) -> memoryview | None:
        """The rest of a large frame's own memory, or None between frames."""
        return None if self._large is None else self._large[self._filled :]

    def filled(self, count: int) -> list[memoryview]:
        """The large frame, once `count` more bytes in `space()` complete it."""
        self._filled += count
        if self._large is None or self._filled < len(self._large):
            return []
        done, self._large = self._large, None
        return [done]

    def feed(self, chunk: memoryview) -> list[bytes]:
        """The frames that `chunk` completes, in memory of their own; `chunk` may be reused.

        Raises:
            FrameError: The stream is not ours, or a frame is larger than the limit.
        """
        if self._rest:
            # the rest is shorter than one read, as larger frames have memory of their own: this
            # copy is bounded
            chunk = memoryview(self._rest + chunk)
            self._rest = b""
        start, end = 0, len(chunk)
        frames: list[bytes] = []
        while end - start >= 8:
            size = _LENGTH.unpack_from(chunk, start)[0] + 8
            # before memory is taken for it: the length is the peer's word
            if not HEADER_SIZE <= size <= self._limit + 8:
                raise _bad_length(size - 8, self._limit)
            if start + size > end:
                # received in place from here on: the kernel's copy is the only one of the rest
                if size > READ_SIZE:
                    self._large = _memory(size)
                    self._filled = end - start
                    self._large[: self._filled] = chunk[start:end]
                    return frames
                break
            frames.append(bytes(chunk[start : start + size]))
            start += size
        if start < end:
            self._rest = bytes(chunk[start:end])
        return frames

    @property
    def idle(self) -> bool:
        """True if the stream stands between two frames, so that its end loses nothing."""
        return self._large is None and not self._rest


def _memory(size: int) -> memoryview:
    """Writable memory.

    Much of it takes room only where it is written to: a peer that announces 10 GiB and sends none
    claims none.
    """
    if size < _MUCH:
        return memoryview(bytearray(size))
    try:
        return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    except (OSError, MemoryError, OverflowError) as error:
        raise FrameError(
            f"a frame of {size} bytes, for which there is no memory: {error}"
        ) from None


def _bad_length(length: int, limit: int) -> FrameError:
    if length > limit:
        return FrameError(
            f"a frame of {length} bytes is over the limit of {limit} (codec_max_frame_length)"
        )
    return FrameError(
        f"a frame of {length} bytes is shorter than its header: the peer speaks another protocol"
    )
