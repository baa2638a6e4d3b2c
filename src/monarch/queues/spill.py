"""Items of a replay buffer that its memory does not hold, in files without a name.

They are gone with their process.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import IO

from .sealed import Sealed

# bytes; a file goes when the last item in it does, and most items go in the order in which they
# came
_SEGMENT = 64 << 20


class _Segment:
    """A file, and how many of the items in it are wanted."""

    def __init__(self, folder: str | None) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        self.wanted = 0
        self.size = 0


@dataclass(frozen=True)
class Spilled:
    """The place of an item: in that file, from there on, parts of these sizes."""

    segment: _Segment
    begin: int
    sizes: tuple[int, ...]

    def read(self) -> Sealed:
        self.segment.file.seek(self.begin)
        payload, *buffers = (_read(self.segment.file, size) for size in self.sizes)
        return Sealed(payload, buffers)

    def forget(self) -> None:
        """Drop an item; the last one closes the file."""
        self.segment.wanted -= 1
        if not self.segment.wanted and self.segment.size >= _SEGMENT:
            self.segment.file.close()


class Spill:
    """A folder of files for items that memory does not hold.

    Args:
        folder: Of the files; None is the folder for temporary files.
    """

    def __init__(self, folder: str | None) -> None:
        self._folder = folder
        self._segment = _Segment(folder)

    def write(self, item: Sealed) -> Spilled:
        """Write an item to disk.

        Raises:
            OSError: The disk is full, for one. The next item overwrites the part that was written.
        """
        if self._segment.size >= _SEGMENT:
            self._segment = _Segment(self._folder)
        segment = self._segment
        begin = segment.size
        segment.file.seek(begin)
        sizes = tuple(_write(segment.file, part) for part in (item.payload, *item.buffers))
        segment.size = begin + sum(sizes)
        segment.wanted += 1
        return Spilled(segment, begin, sizes)


def _write(file: IO[bytes], data: bytes | bytearray | memoryview) -> int:
    rest = whole = memoryview(data).cast("B")
    while rest:
        rest = rest[file.write(rest) :]
    return whole.nbytes


def _read(file: IO[bytes], size: int) -> bytearray:
    found = bytearray(size)
    rest = memoryview(found)
    while rest:
        read = file.readinto(rest)  # type: ignore[attr-defined]
        if not read:
            raise OSError("a file of this replay buffer is shorter than it was")
        rest = rest[read:]
    return found
