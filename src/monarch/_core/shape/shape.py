"""Extent, Point, Shape and Region.

Labels and sizes, a position in them, and labels on a slice of flat ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from monarch._core.shape.checks import (
    NegativeIndexError,
    OutOfRangeError,
    as_labels,
    as_sizes,
    check_coordinates,
    format_sizes,
    pick_index,
    pick_range,
    unknown_label,
)
from monarch._core.shape.ndslice import Slice, make_slice, row_major_strides


class Extent(Mapping[str, int]):
    """Ordered labels and sizes of a mesh: an immutable, hashable mapping from label to size.

    Args:
        labels: one distinct name per dimension, outermost first.
        sizes: as many whole numbers, each at least 1.

    An extent without dimensions is valid and has one element.

    Raises:
        ValueError: the lengths differ, a label appears twice, or a size is below 1.
        TypeError: a label is not a string, or a size is not a whole number.
    """

    __slots__ = ("_labels", "_sizes")
    _labels: tuple[str, ...]
    _sizes: tuple[int, ...]

    def __init__(self, labels: Iterable[str], sizes: Iterable[int]) -> None:
        self._labels = as_labels(labels)
        self._sizes = as_sizes(sizes)
        if len(self._labels) != len(self._sizes):
            raise ValueError(
                f"an extent needs one size per label, got {len(self._labels)} labels"
                f" {list(self._labels)} and {len(self._sizes)} sizes {list(self._sizes)}"
            )

    @property
    def labels(self) -> list[str]:
        """The dimension labels, outermost first, as a new list."""
        return list(self._labels)

    @property
    def sizes(self) -> list[int]:
        """The sizes in the order of `labels`, as a new list."""
        return list(self._sizes)

    @property
    def nelements(self) -> int:
        """The number of elements: the product of the sizes, 1 without dimensions."""
        return prod(self._sizes)

    @property
    def region(self) -> Region:
        """The row-major region, from rank 0, that has this extent."""
        shape = Shape.from_extent(self)
        return Region(shape._labels, shape._ndslice)

    def __getitem__(self, label: str) -> int:
        """The size of one dimension.

        Raises `LabelError` (a ValueError and a KeyError) for an unknown label.
        """
        try:
            return self._sizes[self._labels.index(label)]
        except ValueError:
            raise unknown_label(label, self._labels) from None

    def __contains__(self, label: object) -> bool:
        return label in self._labels

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        """The number of dimensions, not of elements."""
        return len(self._labels)

    # Monarch programs compare and index this as a list
    def keys(self) -> list[str]:  # type: ignore[override]
        """The labels, as a new list."""
        return list(self._labels)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Extent):
            return NotImplemented
        return self._labels == other._labels and self._sizes == other._sizes

    def __hash__(self) -> int:
        return hash((self._labels, self._sizes))

    def __repr__(self) -> str:
        return format_sizes(self._labels, self._sizes)

    def __reduce__(self) -> tuple[object, ...]:
        return Extent, (self._labels, self._sizes)


class Point(Mapping[str, int]):
    """One position in an extent: an immutable, hashable mapping from label to index.

    For use in `mesh.slice(**point)`.

    Args:
        rank: the row-major linear index in `extent`, 0 for the first element.
        extent: the extent that the rank counts in.

    Construction checks nothing, because every message makes a point; reading a coordinate of a rank
    that is outside the extent raises.

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
        """Return the size of one dimension.

        Raises `LabelError` (a ValueError and a KeyError) for an unknown label.

        Args:
            label: The dimension.
        """
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
            raise OutOfRangeError(
                f"rank {self._rank} is outside {self._extent}, which has {prod(sizes)} elements"
            )
        return self._rank // prod(sizes[position + 1 :]) % sizes[position]

    def __contains__(self, label: object) -> bool:
        return label in self._extent._labels

    def __iter__(self) -> Iterator[str]:
        return iter(self._extent._labels)

    def __len__(self) -> int:
        """The number of dimensions."""
        return len(self._extent._labels)

    # Monarch programs compare and index this as a list
    def keys(self) -> list[str]:  # type: ignore[override]
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
        parts = [f"{label!r}: {self[label]}/{extent[label]}" for label in extent]
        return "{" + ", ".join(parts) + "}"

    def __reduce__(self) -> tuple[object, ...]:
        return Point, (self._rank, self._extent)


class _LabelledSlice:
    """The base of Shape and Region: distinct labels, one per dimension of a slice.

    Immutable and hashable.
    """

    __slots__ = ("_labels", "_ndslice")
    _labels: tuple[str, ...]
    _ndslice: Slice

    def __init__(self, labels: Iterable[str], slice: Slice) -> None:  # noqa: A002  # Monarch's name
        if not isinstance(slice, Slice):
            raise TypeError(f"{type(self).__name__} needs a monarch Slice (NDSlice), got {slice!r}")
        self._labels = as_labels(labels)
        self._ndslice = slice
        if len(self._labels) != slice.ndim:
            raise ValueError(
                f"{type(self).__name__} needs one label per dimension, got {len(self._labels)}"
                f" labels {self.labels} for {slice.ndim} dimensions of sizes {slice.sizes}"
            )

    @property
    def labels(self) -> list[str]:
        """The dimension labels, outermost first, as a new list."""
        return list(self._labels)

    @property
    def extent(self) -> Extent:
        """Labels and sizes, without the ranks."""
        return make_extent(self._labels, self._ndslice._sizes)

    def __len__(self) -> int:
        """The number of elements."""
        return len(self._ndslice)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _LabelledSlice) or type(self) is not type(other):
            return NotImplemented
        return self._labels == other._labels and self._ndslice == other._ndslice

    def __hash__(self) -> int:
        return hash((self._labels, self._ndslice))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(labels={self.labels}, slice={self._ndslice!r})"

    def __str__(self) -> str:
        sizes = zip(self._labels, self._ndslice._sizes, strict=True)
        return "{" + ",".join(f"{label}={size}" for label, size in sizes) + "}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._labels, self._ndslice)


class Shape(_LabelledSlice):
    """The geometry of a mesh: dimension labels, and the flat rank behind each coordinate.

    Args:
        labels: One label per dimension, all different.
        slice: The ranks, an `NDSlice`.

    Raises:
        ValueError: Labels and dimensions differ in number, or a label comes twice.
        TypeError: `slice` is no `NDSlice`.
    """

    __slots__ = ()

    @staticmethod
    def unity() -> Shape:
        """The shape without dimensions, which has one element: rank 0."""
        return make_shape((), make_slice(0, (), ()))

    @staticmethod
    def from_extent(extent: Extent) -> Shape:
        """Return the row-major shape of ranks 0, 1, 2, ... with this extent.

        Args:
            extent: Labels and sizes.
        """
        return make_shape(
            extent._labels, make_slice(0, extent._sizes, row_major_strides(extent._sizes))
        )

    @property
    def ndslice(self) -> Slice:
        """The ranks."""
        return self._ndslice

    @property
    def region(self) -> Region:
        """A region with these labels and ranks."""
        return Region(self._labels, self._ndslice)

    def at(self, label: str, i: int) -> Shape:
        """The shape of the elements at index `i` of one dimension, without that dimension.

        Args:
            label: The dimension.
            i: The index, from 0.

        Raises:
            ValueError: There is no such dimension, or no such index in it (NegativeIndexError, an
                OverflowError as well, if negative).
            TypeError: `i` is not a whole number.
        """
        d = self._dimension(label)
        size, stride = self._ndslice._sizes[d], self._ndslice._strides[d]
        try:
            shift = pick_index(label, size, i) * stride
        except OutOfRangeError as error:
            if i < 0:
                raise NegativeIndexError(str(error)) from None
            raise
        return self._replace(d, shift, (), (), ())

    def select(self, label: str, slice: slice) -> Shape:  # noqa: A002  # Monarch's name
        """The shape restricted along one dimension, which stays even if one element is left.

        Args:
            label: the dimension.
            slice: a Python slice with the usual meaning of bounds and a step of at least 1.

        Raises:
            ValueError: there is no such dimension, nothing is selected, or the step is below 1.
            TypeError: `slice` is not a Python slice of whole numbers.
        """
        d = self._dimension(label)
        picked = pick_range(label, self._ndslice._sizes[d], slice)
        stride = self._ndslice._strides[d]
        return self._replace(
            d, picked.start * stride, (label,), (len(picked),), (picked.step * stride,)
        )

    def index(self, **coords: int) -> int:
        """The rank at these coordinates; all dimensions must be given.

        Args:
            **coords: An index for each dimension.

        Raises:
            LabelError: (a ValueError and a KeyError) a dimension is missing, or there is no such
                dimension.
            OutOfRangeError: (an IndexError and a ValueError) an index is outside its dimension.
        """
        return self._ndslice.nditem(check_coordinates(self._labels, self._ndslice._sizes, coords))

    def coordinates(self, rank: int) -> dict[str, int]:
        """Return the coordinates of a rank by label.

        Args:
            rank: A rank of the shape.

        Raises:
            ValueError: The rank is not in the shape.
        """
        return dict(zip(self._labels, self._ndslice.coordinates(rank), strict=True))

    def ranks(self) -> list[int]:
        """The ranks in row-major order."""
        return list(self._ndslice.ranks())

    def _dimension(self, label: str) -> int:
        try:
            return self._labels.index(label)
        except ValueError:
            raise unknown_label(label, self._labels) from None

    def _replace(
        self,
        d: int,
        shift: int,
        labels: tuple[str, ...],
        sizes: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> Shape:
        old = self._ndslice
        replaced = make_slice(
            old._offset + shift,
            old._sizes[:d] + sizes + old._sizes[d + 1 :],
            old._strides[:d] + strides + old._strides[d + 1 :],
        )
        return make_shape(self._labels[:d] + labels + self._labels[d + 1 :], replaced)


class Region(_LabelledSlice):
    """Ranks of a larger space, arranged and labelled.

    The arguments and errors are those of `Shape`.
    """

    __slots__ = ()

    def slice(self) -> Slice:
        """The ranks in the larger space."""
        return self._ndslice

    def as_shape(self) -> Shape:
        """A shape with these labels and ranks."""
        return make_shape(self._labels, self._ndslice)

    def point_of_base_rank(self, base_rank: int) -> Point:
        """The position, in this region's extent, of a rank of the larger space.

        Raises ValueError if it is not here.
        """
        return Point(self._ndslice.index(base_rank), self.extent)


def make_extent(labels: tuple[str, ...], sizes: tuple[int, ...]) -> Extent:
    """An extent from parts that are known to be valid.

    Meshes build one per `extent`, so it skips the checks.
    """
    extent = Extent.__new__(Extent)
    extent._labels = labels
    extent._sizes = sizes
    return extent


def make_shape(labels: tuple[str, ...], ndslice: Slice) -> Shape:
    """Return a shape from parts that are known to be valid.

    Slicing a mesh is on a hot path, so it skips the checks.
    """
    shape = Shape.__new__(Shape)
    shape._labels = labels
    shape._ndslice = ndslice
    return shape
