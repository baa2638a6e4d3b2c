"""Point: one position in an extent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from monarch._core.shape.extent import Extent, OutOfRangeError, unknown_label


class Point(Mapping[str, int]):
    """One position in an extent: an immutable, hashable mapping from label to index, `mesh.slice(**point)`.

    Args:
        rank: the row-major linear index in `extent`, 0 for the first element.
        extent: the extent that the rank counts in.

    Construction checks nothing, because every message makes a point; reading a coordinate of a rank that is outside
    the extent raises.

    As for any mapping, `len` is the number of dimensions, so a point without dimensions is false.
    """

    __slots__ = ("_extent", "_rank")

    def __init__(self, rank: int, extent: Extent) -> None:
        self._rank = rank
        self._extent = extent

    @property
    def rank(self) -> int:
        """The row-major linear index in `extent`."""
        return self._rank

    @property
    def extent(self) -> Extent:
        """The extent that the rank counts in."""
        return self._extent

    def size(self, label: str) -> int:
        """The size of one dimension. Raises `LabelError` (a ValueError and a KeyError) for an unknown label."""
        return self._extent[label]

    def __getitem__(self, label: str) -> int:
        """The index along one dimension.

        Raises:
            LabelError: (a ValueError and a KeyError) there is no such dimension.
            OutOfRangeError: (a ValueError and an IndexError) the rank is outside the extent.
        """
        labels, sizes = self._extent._labels, self._extent._sizes
        try:
            position = labels.index(label)
        except ValueError:
            raise unknown_label(label, labels) from None
        if not 0 <= self._rank < prod(sizes):
            raise OutOfRangeError(f"rank {self._rank} is outside {self._extent}, which has {prod(sizes)} elements")
        return self._rank // prod(sizes[position + 1 :]) % sizes[position]

    def __contains__(self, label: object) -> bool:
        return label in self._extent._labels

    def __iter__(self) -> Iterator[str]:
        return iter(self._extent._labels)

    def __len__(self) -> int:
        """The number of dimensions."""
        return len(self._extent._labels)

    def keys(self) -> list[str]:  # type: ignore[override]  # Monarch programs compare and index this as a list
        """The labels, as a new list."""
        return list(self._extent._labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Point):
            return NotImplemented
        return self._rank == other._rank and self._extent == other._extent

    def __hash__(self) -> int:
        return hash((self._rank, self._extent))

    def __repr__(self) -> str:
        extent = self._extent
        if not 0 <= self._rank < prod(extent._sizes):
            return f"<Point: rank {self._rank} outside {extent}>"
        return "{" + ", ".join(f"{label!r}: {self[label]}/{extent[label]}" for label in extent) + "}"

    def __reduce__(self) -> tuple[object, ...]:
        return Point, (self._rank, self._extent)
