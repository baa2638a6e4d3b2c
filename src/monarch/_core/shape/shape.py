"""Shape and Region: labels on a slice of flat ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index

from monarch._core.shape.extent import (
    Extent,
    LabelError,
    OutOfRangeError,
    as_labels,
    describe_labels,
    make_extent,
    unknown_label,
)
from monarch._core.shape.ndslice import Slice, make_slice, row_major_strides
from monarch._core.shape.point import Point


class NegativeIndexError(OutOfRangeError, OverflowError):
    """A negative index given to `Shape.at`; an OverflowError too, as Monarch programs expect there."""


class _LabelledSlice:
    """What Shape and Region have in common: distinct labels, one per dimension of a slice. Immutable and hashable."""

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
                f"{type(self).__name__} needs one label per dimension, got {len(self._labels)} labels "
                f"{self.labels} for {slice.ndim} dimensions of sizes {slice.sizes}"
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
        return (
            "{"
            + ",".join(f"{label}={size}" for label, size in zip(self._labels, self._ndslice._sizes, strict=True))
            + "}"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._labels, self._ndslice)


class Shape(_LabelledSlice):
    """The geometry of a mesh: dimension labels, and the flat rank behind each coordinate.

    Args:
        labels: distinct strings, one per dimension of `slice`.
        slice: the ranks.

    Raises:
        ValueError: a label appears twice, or there is not one label per dimension.
        TypeError: a label is not a string, or `slice` is not a `Slice`.
    """

    __slots__ = ()

    @staticmethod
    def unity() -> Shape:
        """The shape without dimensions, which has one element: rank 0."""
        return make_shape((), make_slice(0, (), ()))

    @staticmethod
    def from_extent(extent: Extent) -> Shape:
        """The row-major shape of ranks 0, 1, 2, ... with this extent."""
        return make_shape(extent._labels, make_slice(0, extent._sizes, row_major_strides(extent._sizes)))

    @property
    def ndslice(self) -> Slice:
        """The ranks."""
        return self._ndslice

    @property
    def region(self) -> Region:
        """The same labels and ranks as a region."""
        return Region(self._labels, self._ndslice)

    def at(self, label: str, i: int) -> Shape:
        """The shape of the elements at index `i` of one dimension, without that dimension.

        Raises:
            ValueError: there is no such dimension, or no such index in it (a negative one is an OverflowError as well).
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
        return self._replace(d, picked.start * stride, (label,), (len(picked),), (picked.step * stride,))

    def index(self, **coords: int) -> int:
        """The rank at these coordinates; all dimensions must be given.

        Raises:
            LabelError: (a ValueError and a KeyError) a dimension is missing, or there is no such dimension.
            OutOfRangeError: (an IndexError and a ValueError) an index is outside its dimension.
        """
        rank = self._ndslice._offset
        for label, i in zip(self._labels, check_coordinates(self._labels, self._ndslice._sizes, coords), strict=True):
            rank += i * self._ndslice._strides[self._labels.index(label)]
        return rank

    def coordinates(self, rank: int) -> dict[str, int]:
        """The coordinates of a rank by label. Raises ValueError if the rank is not in the shape."""
        return dict(zip(self._labels, self._ndslice.coordinates(rank), strict=True))

    def ranks(self) -> list[int]:
        """All ranks in row-major order."""
        return list(self._ndslice.ranks())

    def _dimension(self, label: str) -> int:
        try:
            return self._labels.index(label)
        except ValueError:
            raise unknown_label(label, self._labels) from None

    def _replace(
        self, d: int, shift: int, labels: tuple[str, ...], sizes: tuple[int, ...], strides: tuple[int, ...]
    ) -> Shape:
        old = self._ndslice
        replaced = make_slice(
            old._offset + shift,
            old._sizes[:d] + sizes + old._sizes[d + 1 :],
            old._strides[:d] + strides + old._strides[d + 1 :],
        )
        return make_shape(self._labels[:d] + labels + self._labels[d + 1 :], replaced)


class Region(_LabelledSlice):
    """Some ranks of a larger space, arranged and labelled: the arguments and errors are those of `Shape`."""

    __slots__ = ()

    def slice(self) -> Slice:
        """The ranks in the larger space."""
        return self._ndslice

    def as_shape(self) -> Shape:
        """The same labels and ranks as a shape."""
        return make_shape(self._labels, self._ndslice)

    def point_of_base_rank(self, base_rank: int) -> Point:
        """The position, in this region's extent, of a rank of the larger space. Raises ValueError if it is not here."""
        return Point(self._ndslice.index(base_rank), self.extent)


def make_shape(labels: tuple[str, ...], ndslice: Slice) -> Shape:
    """A shape from parts that are known to be valid: slicing a mesh is on a hot path, so it skips the checks."""
    shape = Shape.__new__(Shape)
    shape._labels = labels
    shape._ndslice = ndslice
    return shape


def pick_index(label: str, size: int, i: object) -> int:
    """`i` as an index of a dimension. Raises TypeError if it is no whole number, `OutOfRangeError` if it is outside."""
    try:
        checked = index(i)  # type: ignore[arg-type]  # what cannot be an index is reported below
    except TypeError:
        raise TypeError(f"dimension {label!r} is selected by an int or a Python slice, got {i!r}") from None
    if not 0 <= checked < size:
        raise OutOfRangeError(
            f"index {checked} is out of range for dimension {label!r} of size {size}, 0 to {size - 1}"
        )
    return checked


def pick_range(label: str, size: int, key: slice) -> range:
    """The indices that a Python slice selects. Raises ValueError if there are none or the step is below 1."""
    if not isinstance(key, slice):
        raise TypeError(f"a range of dimension {label!r} is selected by a Python slice, got {key!r}")
    try:
        if key.step is not None and index(key.step) < 1:
            raise ValueError(
                f"the step must be at least 1, got {_show(key)} for dimension {label!r}: a mesh keeps its order"
            )
        picked = range(size)[key]
    except TypeError:
        raise TypeError(
            f"the bounds of a slice must be whole numbers, got {_show(key)} for dimension {label!r}"
        ) from None
    if not picked:
        raise ValueError(f"{_show(key)} selects nothing (an empty range) of dimension {label!r} of size {size}")
    return picked


def _show(key: slice) -> str:
    return ":".join("" if part is None else str(part) for part in (key.start, key.stop, key.step))


def check_coordinates(labels: Sequence[str], sizes: Sequence[int], coords: dict[str, int]) -> list[int]:
    """The indices in the order of `labels`, one for each. Raises `LabelError`, `OutOfRangeError` or TypeError."""
    missing = [label for label in labels if label not in coords]
    if missing:
        raise LabelError(f"need an index for each dimension, missing {missing}; got {list(coords)}")
    extra = [label for label in coords if label not in labels]
    if extra:
        raise LabelError(f"got extra dimensions {extra}; there {describe_labels(tuple(labels))}")
    return [pick_index(label, size, coords[label]) for label, size in zip(labels, sizes, strict=True)]
