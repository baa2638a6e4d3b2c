"""The output of a proc: whole lines with their author, numbered in its answers.

The streams of a proc are Python's own, over a file that notes that it was written to, and puts a
head in front of each line: the actor, the endpoint, and the known fields of the `logging` record
that is being written. The host agent takes it off. No other reader ever sees one: where a
descriptor has been turned to a file, or is read by a program in between, nothing is put there. What
child processes and C libraries write has no head, and is not noted. An answer of a proc that has
printed nothing pays one look at a variable.
"""

from __future__ import annotations

import io
import os
import select
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache
from typing import Any

from ..._namedtuple import NamedTuple
from ..wire.address import ProcAddress
from ..wire.frame import PRINTED

BEGIN, END = b"\x1e\x1d", b"\x1f"
"""Around the head of a line."""

NEWLINE = b"\x1d\x1f"
"""Stands for a newline inside of a record."""

_BETWEEN = "\x1d"
_END_OF_TIME = 1e11  # in the year 5138: a record of anybody's own may say anything


class Note(NamedTuple):
    """The author of a line, as far as its process knows.

    Attributes:
        actor: Name of the actor that ran.
        endpoint: Name of the endpoint that ran.
        level: Level of a `logging` record; this and the following fields are empty for printed
            lines.
        logger: Name of its logger.
        location: ``"file.py:12"``, where it was made.
        time: When it was made, in seconds since the epoch.
    """

    actor: str = ""
    endpoint: str = ""
    level: int = 0
    logger: str = ""
    location: str = ""
    time: float = 0.0


NO_AUTHOR = Note()

unshown = False
"""True if something was printed that the client was not told of yet: here, or by a process that has
told this one so.
"""

who: Callable[[], Note] = lambda: NO_AUTHOR  # noqa: E731  # replaced in procs
"""Who prints, on the current thread."""

_streams: dict[io.TextIOWrapper, _Noted] = {}
_read_by_agent: Collection[int] = ()  # inodes of its pipes


def read_by_agent(pipes: Collection[int]) -> None:
    """Give lines a head in the pipes of these inodes, which the agent reads."""
    global _read_by_agent
    _read_by_agent = pipes


@lru_cache(1024)
def read_note(head: bytes) -> Note:
    """Read a head, with its delimiters."""
    fields: list[Any] = head[len(BEGIN) : -len(END)].decode(errors="replace").split(_BETWEEN)
    with suppress(ValueError, IndexError):
        if len(fields) > 2:
            time = float(fields[5])
            fields[2], fields[5] = int(fields[2]), time if 0 <= time < _END_OF_TIME else 0.0
        return Note(*fields[:6])
    return NO_AUTHOR


def head_of(note: Note) -> bytes:
    """Make the head that stands before a text of this author."""
    fields = map(str, note if note.logger else note[:2])
    text = _BETWEEN.join(field.translate(_NO_CONTROLS) for field in fields)
    return BEGIN + text.encode(errors="replace") + END


_NO_CONTROLS = dict.fromkeys(range(32))


class _Noted(io.FileIO):
    _note = NO_AUTHOR
    _head = b""  # that of `_note`
    _open: Note | None = None  # who has begun a line here that has no end yet
    writer = 0  # id of the thread that writes, which may have to wait

    def write(self, data: Any) -> int:
        global unshown
        unshown = True
        if not _read_by_agent or os.fstat(self.fileno()).st_ino not in _read_by_agent:
            return super().write(data)
        text = bytes(data)
        try:
            note = who()
            # the same object as a rule: an actor prints several lines in a row
            if note is not self._note:
                self._head, self._note = head_of(note), note
        except Exception:  # a record of the program's own kind: its text counts more
            note, self._note, self._head = NO_AUTHOR, NO_AUTHOR, head_of(NO_AUTHOR)
        size, begun, self._open = len(text), self._open, None if text.endswith(b"\n") else note
        head = self._head if note != NO_AUTHOR or begun else b""
        if b"\n" in text[:-1]:
            text = text[:-1].replace(b"\n", NEWLINE if note.logger else b"\n" + head) + text[-1:]
        self._write_all(text if begun == note else head + text)
        return size

    def _write_all(self, data: bytes) -> None:
        self.writer = threading.get_ident()
        try:
            while (written := super().write(data)) != len(data):
                # a child process, which shares the pipe, has made it non-blocking
                if written is None:
                    select.select((), (self.fileno(),), ())
                else:
                    data = data[written:]
        finally:
            self.writer = 0


def install() -> None:
    """Have ``sys.stdout`` and ``sys.stderr`` take note.

    They write line by line, with ``PYTHONUNBUFFERED``, too: there, the end of a line is a write of
    its own, and what others print comes in between.
    """
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        # there is none, or a module has put its own there
        if type(stream) is not io.TextIOWrapper or stream in _streams:
            continue
        with suppress(OSError, ValueError):
            raw = _Noted(stream.fileno(), "w", closefd=False)
            # the agent reads UTF-8; what the client's own output cannot encode is the client's
            # concern
            noted = io.TextIOWrapper(
                io.BufferedWriter(raw), "utf-8", "backslashreplace", "\n", line_buffering=True
            )
            _streams[noted] = raw
            setattr(sys, name, noted)
            setattr(sys, f"__{name}__", noted)


def pass_on(peer: ProcAddress) -> None:
    """Note that the sender of a message had printed: answers of this process must come after."""
    global unshown
    unshown = True


def flag(to: ProcAddress, client: ProcAddress) -> int:
    """The flag of an answer that is sent after something was printed."""
    global unshown
    if to == client:
        unshown = False  # first: what another actor prints meanwhile is for its own answer
    for stream, raw in _streams.items():
        # else that thread holds the lock of the stream, perhaps until the agent reads on
        if not raw.writer:
            with suppress(OSError, ValueError):
                stream.flush()
    return PRINTED
