"""A black box: what a process was doing, in memory that outlives it.

Its host agent holds the same memory, and reads it afterwards.

It is an anonymous memory file, so that there is no name to clean up: the kernel frees it with its
last holder, in whichever order the processes die. The process tells its agent the number of its
descriptor once, when it is up. To write costs no system call, and the agent does nothing until the
process has ended. There are three parts:

    current     slots of a fixed size: the messages that are being handled, written by the plane that watches messages
    life        a ring of lines: starts and ends of actors, as they happen
    last        lines that are written once a second while the process is active, in two places by turns

A process may be killed between any two stores. So a part is written first, and the word that makes
it valid last: a store of 8 bytes. The content is taken as data of a stranger: a process that is
out of its mind may have written there.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ..._namedtuple import NamedTuple
from ..net.segment import new_file

SIZE = 64 * 1024
_MAGIC = 0x314B434C424E4F4D  # "MONBLCK1"
# the magic, how much was ever written to `life`, length and place of `last`
_WORDS = struct.Struct("<QQQ")
_ADDRESS = 64  # where the name of the process is, up to the slots
_SLOTS, _SLOT_SIZE, SLOT_COUNT = 256, 128, 30
_SLOT = struct.Struct("<QQQQI84s")
_SLOT_REST = struct.Struct("<QQQI84s")  # behind the first word, which makes it valid
_LIFE, _LIFE_SIZE = 4096, 12 * 1024
_LAST, _LAST_SIZE = 16 * 1024, 24 * 1024
_NEXT, _END = b"\x1f", b"\x1e"  # behind a field, and behind a line
_LONGEST = 1_500  # characters of a line


class Current(NamedTuple):
    """A message that is being handled.

    Attributes:
        begin: Since when, in nanoseconds since 1970.
        number: Of the message, in its process.
        uid: Of the actor.
        sender: Its id in tables.
        size: Bytes of the message.
        meta: Its endpoint, as the message has it; the first 84 bytes.
    """

    begin: int
    number: int
    uid: int
    sender: int
    size: int
    meta: bytes


class BoxActor(NamedTuple):
    """An actor, as the last report has it."""

    uid: int
    rank: int
    name: str
    class_name: str
    path: str
    incarnation: int
    created_us: int
    status: str
    queued: int
    handled: int


class BoxCall(NamedTuple):
    """A call that took more than a second, as the last report has it.

    Attributes:
        uid: Of the actor.
        since: When it began, good to a second; in nanoseconds since 1970.
        until: When it had ended; 0 if it was still being handled.
    """

    uid: int
    endpoint: str
    since: int
    until: int


class BoxEvent(NamedTuple):
    """An event in the life of an actor; see `life.LifeEvent`."""

    time: int
    uid: int
    status: str
    reason: str


Line = BoxActor | BoxCall | BoxEvent


class BoxContent(NamedTuple):
    """The content of a box.

    Attributes:
        current: Messages that were being handled.
        life: The latest last.
        actors: Actors that began to live, then those of the last report.
        calls: In the last report.
    """

    current: list[Current]
    life: list[BoxEvent]
    actors: list[BoxActor]
    calls: list[BoxCall]


class BlackBox:
    """The black box of this process.

    Args:
        address: Of the process.

    Attributes:
        fd: Its descriptor, for the agent to open.

    Raises:
        OSError: There is no memory, or no descriptor.
    """

    def __init__(self, address: str) -> None:
        self.fd = new_file(SIZE, "monarch-black-box")
        self._map = mmap.mmap(self.fd, SIZE)  # which has a descriptor of its own
        self._words = memoryview(self._map).cast("Q")
        name = address.encode()[: _SLOTS - _ADDRESS]
        self._map[_ADDRESS : _ADDRESS + len(name)] = name
        self._free = list(range(_SLOTS, _SLOTS + SLOT_COUNT * _SLOT_SIZE, _SLOT_SIZE))
        self._written = 0
        self._unwritten: deque[bytes] = deque()
        self._writing = threading.Lock()
        self._turn = 0
        self._words[0] = _MAGIC

    def begin(self, begin: int, *rest: int | bytes) -> int:
        """A message is being handled; see `Current`.

        Returns the slot that it is in; 0 if none is free.
        """
        try:
            slot = self._free.pop()
        except IndexError:  # so many are handled at once
            return 0
        _SLOT_REST.pack_into(self._map, slot + 8, *rest)
        self._words[slot >> 3] = begin
        return slot

    def end(self, slot: int) -> None:
        """Note that the message has been handled."""
        self._words[slot >> 3] = 0
        self._free.append(slot)

    def happened(self, event: Line) -> None:
        """Keep an event of life, or an actor that begins to live.

        On any thread, and in finalizers and handlers of signals: it never waits.

        The thread that is writing at that moment, which may be this one, writes this event, too.
        """
        self._unwritten.append(_text(event))
        while self._unwritten and self._writing.acquire(blocking=False):
            try:
                while self._unwritten:
                    self._write(self._unwritten.popleft())
            finally:
                self._writing.release()

    def _write(self, line: bytes) -> None:
        at = self._written % _LIFE_SIZE
        first = min(len(line), _LIFE_SIZE - at)
        self._map[_LIFE + at : _LIFE + at + first] = line[:first]
        self._map[_LIFE : _LIFE + len(line) - first] = line[first:]
        self._written += len(line)
        self._words[1] = self._written

    def report(self, lines: Iterable[Line]) -> None:
        """Write the last report over the one before; what it has no room for is left out."""
        data = bytearray()
        for each in lines:
            line = _text(each)
            if len(data) + len(line) > _LAST_SIZE:
                break
            data += line
        self._turn ^= 1
        place = _LAST + self._turn * _LAST_SIZE
        self._map[place : place + len(data)] = data
        self._words[2] = len(data) << 1 | self._turn

    def abandon(self) -> None:
        """Let go of the parent's box, in a fork of the process.

        Later writes go to memory that is never read.
        """
        self._words.release()
        self._map.close()
        os.close(self.fd)
        self._map = mmap.mmap(-1, SIZE)
        self._words = memoryview(self._map).cast("Q")


def _text(line: Line) -> bytes:
    """A line: its kind, and the fields.

    One with a separator in a field is not read again; it harms no other.
    """
    text = "\x1f".join(map(str, (type(line).__name__, *line))).replace("\x1e", " ")
    return text[:_LONGEST].encode(errors="backslashreplace") + _END


def take_over(pid: int, fd: int, address: str) -> int:
    """A descriptor for the box of another local process; -1 if `number` is none of its.

    Args:
        pid: Of the process.
        fd: See `BlackBox.fd`.
        address: Of the process.
    """
    try:
        ours = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        # it is behind a command that has a pid of its own, or this process has no descriptor left
        return -1
    try:
        head = os.pread(ours, _SLOTS, 0) if os.fstat(ours).st_size == SIZE else b""
    except OSError:  # it is no file
        head = b""
    if (
        len(head) < _SLOTS
        or _WORDS.unpack_from(head)[0] != _MAGIC
        or _name(head) != address.encode()[: _SLOTS - _ADDRESS]
    ):
        os.close(ours)
        return -1
    return ours


def _name(head: bytes) -> bytes:
    return head[_ADDRESS:_SLOTS].rstrip(b"\0")


def empty_out(fd: int) -> bytes:
    """Return the content of a box, by a descriptor of `take_over`, which is closed."""
    try:
        data = os.pread(fd, SIZE, 0)
    except OSError:
        return b""
    finally:
        os.close(fd)
    return data


def content_of(data: bytes) -> BoxContent:
    """Read what `empty_out` has found; what makes no sense is left out."""
    if len(data) < SIZE or _WORDS.unpack_from(data)[0] != _MAGIC:
        return BoxContent([], [], [], [])
    _, written, word = _WORDS.unpack_from(data)
    slots = (_SLOT.unpack_from(data, _SLOTS + number * _SLOT_SIZE) for number in range(SLOT_COUNT))
    current = [Current._make((*rest, meta.rstrip(b"\0"))) for *rest, meta in slots if rest[0]]
    ring = data[_LIFE : _LIFE + _LIFE_SIZE]
    at = written % _LIFE_SIZE
    life = ring[:written] if written <= _LIFE_SIZE else (ring[at:] + ring[:at]).partition(_END)[2]
    place = _LAST + (word & 1) * _LAST_SIZE
    last = data[place : place + min(word >> 1, _LAST_SIZE)]
    lines = [*_lines(life), *_lines(last)]
    events = [line for line in lines if isinstance(line, BoxEvent)]
    actors = [line for line in lines if isinstance(line, BoxActor)]
    calls = [line for line in lines if isinstance(line, BoxCall)]
    return BoxContent(current, events, actors, calls)


_KINDS: tuple[type[Any], ...] = (BoxEvent, BoxActor, BoxCall)
_FIELDS: dict[bytes, tuple[type[Any], list[type]]] = {
    kind.__name__.encode(): (
        kind,
        [int if name == "int" else str for name in kind.__annotations__.values()],
    )
    for kind in _KINDS
}


def _lines(text: bytes) -> Iterator[Line]:
    for line in text.split(_END):
        name, *fields = line.split(_NEXT)
        if name not in _FIELDS:
            continue
        kind, types = _FIELDS[name]
        try:
            yield kind(*[each(field.decode()) for each, field in zip(types, fields, strict=True)])
        except ValueError:  # also for too few fields, or bytes that are no text
            continue
