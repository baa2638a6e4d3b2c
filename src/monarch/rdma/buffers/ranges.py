"""Bytes read and written in one action; finds operations that conflict on the same ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Intervals:
    """A set of half-open intervals that do not touch each other, in order."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def overlap(self, start: int, end: int) -> tuple[int, int] | None:
        """The first interval that has a byte of ``[start, end)``."""
        index = bisect_right(self._ends, start)
        if index < len(self._starts) and self._starts[index] < end:
            return self._starts[index], self._ends[index]
        return None

    def add(self, start: int, end: int) -> None:
        """Unite with ``[start, end)``."""
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]


class Accesses:
    """The ranges that are read and written of one memory."""

    __slots__ = ("_read", "_written")

    def __init__(self) -> None:
        self._read = Intervals()
        self._written = Intervals()

    def conflict(self, start: int, end: int, write: bool) -> tuple[int, int] | None:
        """An earlier range that must not be accessed together with ``[start, end)``.

        Two ranges that are only read do not conflict.
        """
        found = self._written.overlap(start, end)
        return found if found is not None or not write else self._read.overlap(start, end)

    def add(self, start: int, end: int, write: bool) -> None:
        (self._written if write else self._read).add(start, end)
