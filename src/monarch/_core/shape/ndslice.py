"""Slice: an n-dimensional strided arrangement of flat ranks."""

from __future__ import annotations

import builtins
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from math import prod
from typing import overload

from monarch._core.shape.checks import OutOfRangeError, as_ints, as_sizes


class Slice:
    """An n-dimensional, strided view of flat ranks: immutable and hashable.

    The element at coordinates `c` has rank `offset + sum(c[d] * strides[d])`.

    Args:
        offset: the rank of the first element, at least 0.
        sizes: elements per dimension, each at least 1; no dimensions at all means one element.
        strides: distance in ranks between neighbours, one per dimension. No two elements may have
            the same rank: each stride must reach beyond all that the smaller strides span.

    Raises:
        ValueError: the lengths differ, a number is too small, or elements overlap.
        TypeError: a number is not whole.
    """

    __slots__ = ("_offset", "_sizes", "_strides")
    _offset: int
    _sizes: tuple[int, ...]
    _strides: tuple[int, ...]

    def __init__(self, *, offset: int, sizes: Iterable[int], strides: Iterable[int]) -> None:
        (self._offset,) = as_ints((offset,), "slice offset")
        self._sizes = as_sizes(sizes)
        self._strides = as_ints(strides, "stride")
        if self._offset < 0:
            raise ValueError(f"a slice offset must be at least 0, got {self._offset}")
        if len(self._sizes) != len(self._strides):
            raise ValueError(
                f"a slice needs one stride per size, got sizes {self.sizes} and strides"
                f" {self.strides}"
            )
        self._check_strides()

    def _check_strides(self) -> None:
        span = 0
        for stride, size in sorted(zip(self._strides, self._sizes, strict=True)):
            if stride < 0:
                raise ValueError(f"a stride must be at least 0, got {stride} in {self.strides}")
            if size > 1 and stride <= span:
                raise ValueError(
                    f"elements overlap: sizes {self.sizes} with strides {self.strides} reach a rank"
                    " twice"
                )
            span += (size - 1) * stride

    @staticmethod
    def new_row_major(sizes: Iterable[int]) -> Slice:
        """Return the slice of ranks 0, 1, 2, ... of these sizes, the last dimension fastest.

        Raises as `Slice` does.

        Args:
            sizes: One size per dimension.
        """
        checked = as_sizes(sizes)
        return make_slice(0, checked, row_major_strides(checked))

    @staticmethod
    def from_list(ranks: Iterable[int]) -> list[Slice]:
        """Return slices that together hold exactly these ranks, each rank once.

        They are ordered by their first rank.

        Args:
            ranks: whole numbers of at least 0; their order, and how often each is given, do not
                matter.

        Regular patterns become one slice; for irregular ones the list is short, but not always the
        shortest.

        Raises:
            ValueError: a rank is negative.
            TypeError: a rank is not a whole number.
        """
        ordered = sorted(set(as_ints(ranks, "rank")))
        if ordered and ordered[0] < 0:
            raise ValueError(f"a rank must be at least 0, got {ordered[0]}")
        left = set(ordered)
        cover: list[Slice] = []
        for start in ordered:
            if start in left:
                piece = _grow(start, ordered, left)
                left.difference_update(piece)
                cover.append(piece)
        return cover

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._sizes)

    @property
    def offset(self) -> int:
        """The rank of the first element."""
        return self._offset

    @property
    def sizes(self) -> list[int]:
        """Elements per dimension, outermost first, as a new list."""
        return list(self._sizes)

    @property
    def strides(self) -> list[int]:
        """Distance in ranks between neighbours, per dimension, as a new list."""
        return list(self._strides)

    @property
    def is_contiguous(self) -> bool:
        """True if the ranks are `offset`, `offset + 1`, ... in row-major order, without gaps."""
        expected = 1
        for size, stride in zip(reversed(self._sizes), reversed(self._strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    def ranks(self) -> Sequence[int]:
        """The ranks in row-major order."""
        if self.is_contiguous:
            return range(self._offset, self._offset + len(self))
        ranks = [self._offset]
        for size, stride in zip(self._sizes, self._strides, strict=True):
            steps = [step * stride for step in range(size)]
            ranks = [rank + step for rank in ranks for step in steps]
        return ranks

    def get(self, i: int) -> int:
        """Return the rank of the element at row-major position `i`.

        Args:
            i: From 0 to below `len`.

        Raises:
            OutOfRangeError: (an IndexError and a ValueError) `i` is negative or not below `len`.
        """
        (position,) = as_ints((i,), "position")
        if not 0 <= position < len(self):
            raise OutOfRangeError(
                f"position {position} is out of range for {len(self)} elements, 0 to"
                f" {len(self) - 1}"
            )
        rank = self._offset
        for size, stride in zip(reversed(self._sizes), reversed(self._strides), strict=True):
            position, coordinate = divmod(position, size)
            rank += coordinate * stride
        return rank

    def index(self, rank: int) -> int:
        """Return the row-major position of a rank.

        Args:
            rank: A rank of the slice.

        Raises:
            ValueError: The rank is not in the slice.
        """
        position = 0
        for coordinate, size in zip(self.coordinates(rank), self._sizes, strict=True):
            position = position * size + coordinate
        return position

    def coordinates(self, rank: int) -> list[int]:
        """Return the coordinates of a rank, one per dimension.

        Args:
            rank: A rank of the slice.

        Raises:
            ValueError: The rank is not in the slice.
        """
        (checked,) = as_ints((rank,), "rank")
        rest = checked - self._offset
        coordinates = [0] * len(self._sizes)
        # The largest stride first: the rest then always fits into the smaller ones, as the
        # constructor has checked.
        for d in sorted(range(len(self._sizes)), key=self._strides.__getitem__, reverse=True):
            if self._sizes[d] > 1:
                coordinates[d] = max(0, min(rest // self._strides[d], self._sizes[d] - 1))
                rest -= coordinates[d] * self._strides[d]
        if rest:
            raise ValueError(f"rank {rank} is not in {self!r}")
        return coordinates

    def nditem(self, coords: Iterable[int]) -> int:
        """The rank at these coordinates.

        Args:
            coords: one index per dimension, from 0.

        Raises:
            ValueError: not one index per dimension.
            OutOfRangeError: (an IndexError and a ValueError) an index is outside its dimension.
        """
        checked = as_ints(coords, "coordinate")
        if len(checked) != len(self._sizes):
            raise ValueError(
                f"need {len(self._sizes)} coordinates, one per dimension, got {list(checked)}"
            )
        rank = self._offset
        for d, (coordinate, size, stride) in enumerate(
            zip(checked, self._sizes, self._strides, strict=True)
        ):
            if not 0 <= coordinate < size:
                raise OutOfRangeError(
                    f"coordinate {coordinate} is out of range for dimension {d} of size {size}"
                )
            rank += coordinate * stride
        return rank

    @overload
    def __getitem__(self, key: int) -> int: ...
    @overload
    def __getitem__(self, key: builtins.slice) -> tuple[int, ...]: ...
    def __getitem__(self, key: int | builtins.slice) -> int | tuple[int, ...]:
        """Return `s[i]` as `get(i)`, and `s[a:b]` as the ranks at those positions.

        The rules are those of Python sequences.
        """
        if isinstance(key, slice):
            return tuple(self.ranks()[key])
        return self.get(key)

    def __contains__(self, rank: object) -> bool:
        if not isinstance(rank, int):
            return False
        try:
            self.coordinates(rank)
        except ValueError:
            return False
        return True

    def __iter__(self) -> Iterator[int]:
        return iter(self.ranks())

    def __len__(self) -> int:
        """The number of elements."""
        return prod(self._sizes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slice):
            return NotImplemented
        return (
            self._offset == other._offset
            and self._sizes == other._sizes
            and self._strides == other._strides
        )

    def __hash__(self) -> int:
        return hash((self._offset, self._sizes, self._strides))

    def __repr__(self) -> str:
        return f"Slice(offset={self._offset}, sizes={self.sizes}, strides={self.strides})"

    def __reduce__(self) -> tuple[object, ...]:
        return make_slice, (self._offset, self._sizes, self._strides)


def make_slice(offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Slice:
    """Return a slice of valid parts, without checks, since slicing a mesh is on a hot path."""
    result = Slice.__new__(Slice)
    result._offset = offset
    result._sizes = sizes
    result._strides = strides
    return result


def row_major_strides(sizes: Sequence[int], innermost: int = 1) -> tuple[int, ...]:
    """Return the strides of a dense arrangement; the last dimension has stride `innermost`."""
    strides: list[int] = []
    for size in reversed(sizes):
        strides.append(innermost)
        innermost *= size
    return tuple(reversed(strides))


def _grow(start: int, ordered: list[int], left: set[int]) -> Slice:
    """Return the slice from `start` of every whole repetition of itself in `left`.

    Dimension by dimension.
    """
    block = [start]
    sizes: list[int] = []
    strides: list[int] = []
    while True:
        beyond = islice(ordered, bisect_right(ordered, block[-1]), None)
        neighbour = next((rank for rank in beyond if rank in left), start)
        stride, count = neighbour - start, 1
        while stride and all(rank + count * stride in left for rank in block):
            count += 1
        if count == 1:
            return make_slice(
                start, tuple(reversed(sizes)) or (1,), tuple(reversed(strides)) or (1,)
            )
        block = [rank + step * stride for step in range(count) for rank in block]
        sizes.append(count)
        strides.append(stride)
