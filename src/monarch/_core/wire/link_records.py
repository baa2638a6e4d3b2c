"""Records of the stream below a link: a greeting each way, then records. Bytes in, records out.

`link` writes them and `link_table` reads them.

Layout (little endian)::

    greeting   magic 8 bytes | version u16 | 2 bytes unused | body u32 | body: a JSON object
    record     body u64 | segment u64 | sequence u64 | acknowledged u64 | kind u8 | body | segment

The greeting's layout is for ever, so that two versions can at least tell each other apart, and why
they part.

    ========  ==========================  ==================================================================
    kind      body                        meaning
    ========  ==========================  ==================================================================
    JOIN      a `Join`                    the side that dialed proposes to start a link, or to go on with one
    JOINED    a `Join`                    agreed
    YIELD     -                           not this stream: both dialed, and the other one's dial counts
    REFUSED   a text                      never, and why
    DATA      a frame up to its buffers   frame number `sequence`; its buffers are the segment
    ACK       -                           nothing new but `acknowledged`
    PING      -                           I am alive
    FAREWELL  a text                      the link ends, and why
    ========  ==========================  ==================================================================

Each record acknowledges all frames up to number `acknowledged`.

The buffers of a frame are laid out as in a shared-memory segment. So they are written from where
they are, the receiver reads them straight into memory of their own, aligned, and `frame.decode`
finds them as it does on one host. That memory costs nothing until bytes arrive: a peer that
announces 10 GiB and sends none has claimed none.
"""

from __future__ import annotations

import json
import mmap
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from struct import Struct
from typing import Any

from ..._namedtuple import NamedTuple
from ..._public import RELEASE
from .frame import (
    ALIGNMENT,
    FLAGS_AT,
    HEADER_SIZE,
    READ_SIZE,
    SEGMENT,
    Bytes,
    Frame,
    FrameError,
    decode,
    encode,
    segment_offsets,
)

VERSION = 1
PYTHON = "{}.{}".format(*sys.version_info)
GREETING, JOIN, JOINED, YIELD, REFUSED, DATA, ACK, PING, FAREWELL = range(9)
_EMPTY = {YIELD, ACK, PING}

_MAGIC = b"MONARCH\n"
_GREETING = Struct("<8sHxxI")
_RECORD = Struct("<QQQQB")
RECORD_SIZE = _RECORD.size
_MOST_TEXT = 64 * 1024  # bytes of any body but a frame
_PADDING = memoryview(bytes(ALIGNMENT))
_NOTHING = memoryview(bytearray())


class LinkError(Exception):
    """The peer sent something senseless, or what we would not take: the stream is of no more use.

    Args:
        final: Whether it would come again on a new stream.
    """

    def __init__(self, message: str, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Hello(NamedTuple):
    """The greeting of a link: the random name of its process, its host's name, the dialed name, the
    release of this package and Python's minor version.
    """

    identity: str
    name: str
    called: str = ""
    release: str = RELEASE
    python: str = PYTHON


class Join(NamedTuple):
    """The link to start or go on with.

    `resume` says that it was up before, `received` how many frames have arrived on it, and `serial`
    orders all that a process says of its links, so that a late record of an older stream is known
    to be out of date.
    """

    link: str
    resume: bool
    received: int
    serial: int


class Record(NamedTuple):
    """One thing that the peer said."""

    kind: int
    sequence: int
    acknowledged: int
    body: memoryview
    segment: memoryview

    @property
    def text(self) -> str:
        return bytes(self.body).decode("utf-8", "replace")

    def frame(self) -> Frame:
        """Decode the frame in a `DATA` record.

        Raises:
            LinkError: No frame; it would be none the next time either.
        """
        try:
            return decode(self.body, self.segment if self.body[FLAGS_AT] & SEGMENT else None)
        except FrameError as error:
            raise LinkError(f"it sent {error}", final=True) from None


def greeting(hello: Hello) -> bytes:
    body = json.dumps(hello._asdict()).encode()
    return _GREETING.pack(_MAGIC, VERSION, len(body)) + body


def control(kind: int, acknowledged: int = 0, body: Join | str = "") -> bytes:
    """A record that is not a frame."""
    data = (
        # the receiver refuses more: a long reason is cut here, not lost there
        body.encode()[:_MOST_TEXT] if isinstance(body, str) else json.dumps(body._asdict()).encode()
    )
    return _RECORD.pack(len(data), 0, 0, acknowledged, kind) + data


class Packed(NamedTuple):
    """A frame, ready for any stream but for its numbers."""

    body: bytes
    segment: Sequence[Bytes]
    segment_size: int

    @property
    def size(self) -> int:
        """Bytes on the stream."""
        return RECORD_SIZE + len(self.body) + self.segment_size


def pack(frame: Frame) -> Packed:
    """Encode a frame; its buffers are referred to, not copied."""
    buffers = frame.buffers
    if not buffers:
        return Packed(encode(frame)[0], (), 0)
    starts, size = segment_offsets([len(buffer) for buffer in buffers])
    chunks: list[Bytes] = []
    for buffer, start, end in zip(buffers, starts, [*starts[1:], size], strict=True):
        chunks.append(buffer)
        if padding := end - start - len(buffer):
            # aligned as in a shared-memory segment: the receiver decodes both alike
            chunks.append(_PADDING[:padding])
    return Packed(
        encode(frame._replace(flags=frame.flags | SEGMENT), inline=False)[0], chunks, size
    )


def data_chunks(packed: Packed, sequence: int, acknowledged: int) -> list[Bytes]:
    """Return the chunks of one frame: header and body in one piece, buffers from their memory."""
    head = _RECORD.pack(len(packed.body), packed.segment_size, sequence, acknowledged, DATA)
    return [head + packed.body, *packed.segment]


def read_hello(body: memoryview) -> Hello:
    known = {"release": "", "python": "", **_object(body)}  # the first releases did not say
    return Hello(**{key: _field(known, key, str) for key in Hello._fields})


CLIENT_HOST = "the host of the client"
"""How texts call a host without an address: only a client has one."""


def why_apart(me: str, ours: Hello, theirs: Hello) -> str:
    """Say why two sides can't unpickle each other's, and which to upgrade; empty if they can."""
    him = theirs.name or CLIENT_HOST
    for what, own, other in (
        ("pymonarch", ours.release, theirs.release),
        ("Python", ours.python, theirs.python),
    ):
        if own != other:
            older = me if _order(own) < _order(other) else him
            return (
                f"{him} runs {what} {other or 'of an older release'}, and {me} {what} {own}:"
                f" upgrade {what} of {older}"
            )
    return ""


def _order(release: str) -> list[tuple[int, str]]:
    """Sorts releases: "0.9.1" before "0.10.0"."""
    return [(int(part) if part.isdecimal() else -1, part) for part in release.split(".")]


def read_join(body: memoryview) -> Join:
    known = _object(body)
    received, serial = (_field(known, key, int) for key in ("received", "serial"))
    return Join(_field(known, "link", str), _field(known, "resume", bool), received, serial)


def _object(body: memoryview) -> dict[str, Any]:
    try:
        known = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise LinkError(f"it sent a greeting that is no JSON: {error}") from None
    if not isinstance(known, dict):
        raise LinkError(f"it sent a greeting that is no JSON object but {type(known).__name__}")
    return known


def _field(known: dict[str, Any], key: str, wanted: type) -> Any:
    found = known.get(key)
    if type(found) is not wanted or (isinstance(found, int) and found < 0):
        raise LinkError(
            f"it sent a greeting whose {key!r} should be {wanted.__name__}, and is {found!r:.80}"
        )
    return found


class RecordDecoder:
    """Cuts a byte stream into records; the greeting comes first, as a record of its own.

    Read into `space()` where that is not None and tell `filled`; otherwise read anywhere and `feed`
    what came.

    Args:
        limit: Largest frame accepted, in bytes.
    """

    __slots__ = ("_begun", "_filled", "_filling", "_limit", "_rest", "version")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = b""
        self.version: int | None = None  # the peer's, from its greeting
        # has its memory already, but not all that belongs into it
        self._begun: Record | None = None
        self._filling = _NOTHING
        self._filled = 0

    @property
    def idle(self) -> bool:
        """True if the stream stands between two records, so that its end cuts nothing short."""
        return self._begun is None and not self._rest

    def space(self) -> memoryview | None:
        """The rest of the memory that is being filled where much is to come, None otherwise."""
        rest = len(self._filling) - self._filled
        return self._filling[self._filled :] if rest >= READ_SIZE else None

    def filled(self, count: int) -> list[Record]:
        """The record, if `count` more bytes in `space()` complete it."""
        record, self._filled = self._begun, self._filled + count
        if record is None or self._filled < len(self._filling):
            return []
        if self._filling is record.body and len(record.segment):
            self._filling, self._filled = record.segment, 0
            return []
        self._begun, self._filling, self._filled = None, _NOTHING, 0
        return [record]

    def feed(self, chunk: memoryview) -> Iterator[Record]:
        """The records that `chunk` completes, in memory of their own; `chunk` may be reused.

        Raises:
            LinkError: The stream is not ours, or a record is larger than the limit.
        """
        if self._rest:
            chunk = memoryview(self._rest + chunk)
            self._rest = b""
        start, end = 0, len(chunk)
        while start < end:
            if self._begun is not None:
                count = min(len(self._filling) - self._filled, end - start)
                self._filling[self._filled : self._filled + count] = chunk[start : start + count]
                start += count
                yield from self.filled(count)
                continue
            header = self._header(chunk[start:])
            if header is None:
                self._rest = bytes(chunk[start:])
                return
            size, body, segment, sequence, acknowledged, kind = header
            start += size
            if not segment and start + body <= end:
                # a copy: `chunk` is scratch memory, and the frame outlives it
                own = memoryview(bytes(chunk[start : start + body]))
                start += body
                yield Record(kind, sequence, acknowledged, own, _NOTHING)
                continue
            self._begun = Record(kind, sequence, acknowledged, _memory(body), _memory(segment))
            self._filling, self._filled = self._begun.body, 0

    def _header(self, data: memoryview) -> tuple[int, int, int, int, int, int] | None:
        """The size of a header, and its content; None if it is not complete."""
        if self.version is None:
            return self._greeting_header(data)
        if len(data) < RECORD_SIZE:
            return None
        body, segment, sequence, acknowledged, kind = _RECORD.unpack_from(data)
        if not GREETING < kind <= FAREWELL:
            raise LinkError(f"it sent a record of unknown kind {kind}")
        most = self._limit if kind == DATA else 0 if kind in _EMPTY else _MOST_TEXT
        if body + segment > most:
            raise LinkError(
                f"it sent {body + segment} bytes where {most} are the most (codec_max_frame_length)"
            )
        if kind == DATA and body < HEADER_SIZE:
            raise LinkError(f"it sent a frame of {body} bytes, shorter than a frame's header")
        return RECORD_SIZE, body, segment, sequence, acknowledged, kind

    def _greeting_header(self, data: memoryview) -> tuple[int, int, int, int, int, int] | None:
        if bytes(data[: len(_MAGIC)]) != _MAGIC[: len(data)]:
            raise LinkError(
                "it speaks another protocol: does another service listen there?", final=True
            )
        if len(data) < _GREETING.size:
            return None
        _, self.version, body = _GREETING.unpack_from(data)
        if body > _MOST_TEXT:
            raise LinkError(f"it sent a greeting of {body} bytes")
        return _GREETING.size, body, 0, 0, 0, GREETING


def _memory(size: int) -> memoryview:
    """Writable memory; much of it only takes room where it is written to."""
    if size < READ_SIZE:
        return memoryview(bytearray(size))
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with suppress(OSError):  # a kernel without huge pages
            # a third less of the processor's time for 128 MB, most of it page faults
            memory.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(memory)
    except (OSError, MemoryError, OverflowError) as error:
        raise LinkError(f"there is no memory for the {size} bytes that it sends: {error}") from None
