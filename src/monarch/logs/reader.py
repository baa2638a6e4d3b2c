"""Reads log files, also while they are written and rotated, and after a crash.

Files in, lines out, by time.

A rank has a file ``<mesh>_<rank>.jsonl`` and, once that was full, ``.jsonl.1`` (its newest
predecessor), ``.jsonl.2`` and so on. Files are read in pieces, never as a whole. A malformed line
(torn by a crash, or rubbish) is passed over and counted.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from io import BufferedReader
from operator import itemgetter
from pathlib import Path

from .._ours import NotOurs, look
from .filter import LineFilter
from .line import LogLine

_PIECE = 64 * 1024  # bytes that are read at once
_LONGEST = 64 << 20  # bytes: a line that is longer is passed over
_BEGIN = b'{"time":'  # of each line, and of nothing else: within a line, quotes are escaped
# seconds by which a line may be older than the one before it: a record is made before it is written
_DISORDER = 10.0

_ALL = LineFilter()

Timed = tuple[float, LogLine]


class MergedLines:
    """The lines of some files, merged by time. Lines of one rank stay in the order of its file.

    Args:
        folder: The files are ``<folder>/<host>/*.jsonl``; it need not exist yet.
        wanted: Which lines.
        without: Names of hosts with files that are read elsewhere.

    Raises:
        ValueError: The filter makes no sense.
    """

    def __init__(
        self, folder: Path, wanted: LineFilter = _ALL, without: Collection[str] = ()
    ) -> None:
        self._folder = folder
        self._without = frozenset(without)
        self._since = wanted.since
        self._matches = wanted.matcher()
        self._ranks: dict[Path, RankFile] = {}

    def find(self) -> list[str]:
        """Look for files; returns the names of the hosts of which there are some, sorted."""
        for path in sorted(self._folder.glob("*/*.jsonl")):
            if path not in self._ranks and path.parent.name not in self._without:
                self._ranks[path] = RankFile(path, self._since)
        return sorted({path.parent.name for path in self._ranks})

    @property
    def rubbish(self) -> int:
        """How many lines were passed over, as they are none."""
        return sum(rank.rubbish for rank in self._ranks.values())

    def read(self) -> Iterator[LogLine]:
        """Yield the lines that are there now and were not read before.

        To follow the files, call it again and again.

        Raises:
            OSError: A file cannot be opened.
        """
        self.find()
        streams = (rank.read(self._matches) for rank in self._ranks.values())
        return map(itemgetter(1), heapq.merge(*streams, key=itemgetter(0)))

    def close(self) -> None:
        """Close the files."""
        for rank in self._ranks.values():
            rank.close()


class RankFile:
    """The lines of one rank.

    Args:
        path: The file that is written.
        since: Seconds since the epoch: much older files need not be read.
        most: Bytes that are read, the last ones; 0: all.

    Attributes:
        skipped: Whether there are more.
        rubbish: How many lines were passed over, as they are none.
    """

    def __init__(self, path: Path, since: float = 0.0, most: int = 0) -> None:
        self._path = path
        self._since = since
        self._most = most
        self.skipped = False
        self._fd: int | None = None
        self._file: tuple[int, int] | None = None  # device and inode of the file that is read
        self._rotated = False  # whether nothing is written to it any more
        self._rest: list[bytes] = []  # of a line, the pieces that were read
        self._rest_size = 0
        self._latest = 0.0
        self.rubbish = 0

    def read(self, matches: Callable[[LogLine], bool]) -> Iterator[Timed]:
        """Yield the lines not yet read, each with the time by which it is merged.

        That never goes back.
        """
        if self._fd is None and not self._open_first():
            return
        while True:
            assert self._fd is not None
            data = os.read(self._fd, _PIECE)
            if data:
                for line in self._lines(data):
                    if matches(line):
                        yield self._latest, line
            elif not self._next_file():
                return

    def close(self) -> None:
        """Close the file; the next `read` would begin anew."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _lines(self, data: bytes) -> Iterator[LogLine]:
        *ended, rest = data.split(b"\n")
        for end in ended:
            text = b"".join([*self._rest, end])
            self._rest, self._rest_size = [], 0
            line = _parse(text)
            if line is None:
                self.rubbish += bool(text.strip(b" \r\0"))
            else:
                self._latest = max(self._latest, line.time)
                yield line
        if rest:
            self._rest_size += len(rest)
            if self._rest_size <= _LONGEST:
                self._rest.append(rest)
            else:
                self._rest = [b"?"]  # is no line, with any bytes behind it

    def _open_first(self) -> bool:
        for path, file in reversed(_parts(self._path)):  # the oldest first
            if self._open(path, file):
                break
        else:
            return False
        if self._since:
            self._skip()
        if self._most:
            self._skip_to_the_last(self._most)
        return True

    def _skip_to_the_last(self, most: int) -> None:
        assert self._fd is not None
        parts = _parts(self._path)
        at = next((i for i, (_, file) in enumerate(parts) if file == self._file), 0)
        sizes = [os.stat(path).st_size for path, _ in parts[: at + 1]]
        offset = os.lseek(self._fd, 0, os.SEEK_CUR)
        too_many = sum(sizes) - offset - most
        if too_many <= 0:
            return
        self.skipped = True
        while at and too_many >= sizes[at] - offset:  # the whole file
            too_many -= sizes[at] - offset
            offset = 0
            at -= 1
            self._open(*parts[at])
        os.lseek(self._fd, offset + too_many, os.SEEK_SET)
        self._rest = [b"?"]  # the end of a line is none

    def _skip(self) -> None:
        """Go to where lines since that time begin.

        A file as a whole, while its successor begins early enough; then by halves.
        """
        since = self._since - _DISORDER
        while True:
            parts = _parts(self._path)
            at = next((i for i, (_, file) in enumerate(parts) if file == self._file), 0)
            if not at:
                break
            path, file = parts[at - 1]
            begins = _first_time(path)
            if begins is None or begins >= since:
                break
            self._open(path, file)
        assert self._fd is not None
        os.lseek(self._fd, find_time(self._fd, since), os.SEEK_SET)

    def _next_file(self) -> bool:
        """Return whether there is more to read at the end of a file, of it or its successor."""
        assert self._fd is not None
        if not self._rotated:
            with suppress(OSError):
                now = os.stat(self._path)
                if (now.st_dev, now.st_ino) == self._file:
                    return self._was_truncated(now.st_size)
            self._rotated = True  # the rest of the rotated file is still to be read
            return True
        parts = _parts(self._path)
        at = next((i for i, (_, file) in enumerate(parts) if file == self._file), len(parts))
        if not at:  # it became the one that is written, which no rotation does: it was moved back
            self._rotated = False
            return False
        return any(self._open(path, file) for path, file in reversed(parts[:at]))

    def _was_truncated(self, size: int) -> bool:
        assert self._fd is not None
        if size >= os.lseek(self._fd, 0, os.SEEK_CUR):
            return False
        os.lseek(self._fd, 0, os.SEEK_SET)
        self._drop_rest()
        return True

    def _open(self, path: Path, file: tuple[int, int]) -> bool:
        """Go on with a file; False if that is another one by now."""
        try:
            fd = look(path)
        except (FileNotFoundError, NotOurs):
            return False
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != file:
            os.close(fd)
            return False
        self.close()
        self._drop_rest()
        self._fd, self._file, self._rotated = fd, file, False
        return True

    def _drop_rest(self) -> None:
        self.rubbish += bool(self._rest)
        self._rest, self._rest_size = [], 0


def _parts(path: Path) -> list[tuple[Path, tuple[int, int]]]:
    """The files of a rank that are there, the newest first, with device and inode.

    Looked up in this order, none is missed that is rotated meanwhile: it moves to where it was not
    looked yet.
    """
    found: list[tuple[Path, tuple[int, int]]] = []
    missing = number = 0
    while missing < 2:  # one is missing for a moment while files are rotated
        part = path.with_name(f"{path.name}.{number}") if number else path
        number += 1
        try:
            status = os.lstat(part)
        except FileNotFoundError:
            missing += 1
            continue
        file = status.st_dev, status.st_ino
        if not found or found[-1][1] != file:
            found.append((part, file))
    return found


def find_time(fd: int, since: float) -> int:
    """The offset in a file of lines at which to begin, so that no line of that time is missed.

    By halves, reading some lines.

    Args:
        fd: The file.
        since: Seconds since the epoch.

    Returns:
        The offset of the beginning of a line, or of the end.
    """
    low, high = 0, os.fstat(fd).st_size
    with open(os.dup(fd), "rb") as file:
        while high - low > _PIECE:
            middle = (low + high) // 2
            start, time = _line_after(file, middle, high)
            if time is None or time >= since:
                high = middle
            else:
                low = start
    return low


def _line_after(file: BufferedReader, offset: int, end: int) -> tuple[int, float | None]:
    """The first line that begins behind an offset: where, and its time.

    None if there is none before the end.
    """
    file.seek(offset)
    file.readline(_LONGEST)  # the end of a line that began before
    while (start := file.tell()) < end:
        line = _parse(file.readline(_LONGEST))
        if line is not None:
            return start, line.time
    return end, None


def _first_time(path: Path) -> float | None:
    try:
        fd = look(path)
    except (FileNotFoundError, NotOurs):
        return None
    try:
        line = _parse(os.pread(fd, _PIECE, 0).split(b"\n", 1)[0])
    finally:
        os.close(fd)
    return None if line is None else line.time


def _parse(text: bytes) -> LogLine | None:
    try:
        return LogLine.from_json(text.decode())
    except (ValueError, RecursionError):  # brackets in brackets in ...
        # a crash may have torn a line, and the next process of the rank has added to it
        start = text.rfind(_BEGIN)
        return _parse(text[start:]) if start > 0 else None
