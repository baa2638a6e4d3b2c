"""Extent: ordered dimension labels and their sizes. Also the checks and the errors that the package shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from operator import index
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monarch._core.shape.shape import Region


class LabelError(ValueError, KeyError):
    """A dimension label that is not there, or is missing from a request.

    It is both kinds because old programs catch ValueError here, while `Mapping.get` and most readers expect KeyError.
    """

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return ValueError.__str__(self)


class OutOfRangeError(IndexError, ValueError):
    """A position outside its dimension or mesh; both kinds, because programs catch one or the other."""


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
                f"an extent needs one size per label, got {len(self._labels)} labels {list(self._labels)} "
                f"and {len(self._sizes)} sizes {list(self._sizes)}"
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
        # Here, since a region is built on an extent: at the top the two modules would import each other.
        from monarch._core.shape.shape import Region, Shape

        shape = Shape.from_extent(self)
        return Region(shape._labels, shape._ndslice)

    def __getitem__(self, label: str) -> int:
        """The size of one dimension. Raises `LabelError` (a ValueError and a KeyError) for an unknown label."""
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

    def keys(self) -> list[str]:  # type: ignore[override]  # Monarch programs compare and index this as a list
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


def make_extent(labels: tuple[str, ...], sizes: tuple[int, ...]) -> Extent:
    """An extent from parts that are known to be valid. Meshes build one per `extent`, so it skips the checks."""
    extent = Extent.__new__(Extent)
    extent._labels = labels
    extent._sizes = sizes
    return extent


def as_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The labels as a tuple. Raises TypeError unless they are strings, ValueError if one appears twice."""
    if isinstance(labels, str):
        # Would otherwise be one dimension per character.
        raise TypeError(f"labels must be a sequence of strings, got the single string {labels!r}; write [{labels!r}]")
    result = tuple(labels)
    for label in result:
        if not isinstance(label, str):
            raise TypeError(f"a dimension label must be a string, got {label!r} in {list(result)}")
    check_distinct(result)
    return result


def check_distinct(labels: tuple[str, ...]) -> None:
    """Raises ValueError, naming it, if a label appears twice."""
    if len(set(labels)) != len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        raise ValueError(f"dimension labels must be distinct, got {twice!r} twice in {list(labels)}")


def as_sizes(sizes: Iterable[int]) -> tuple[int, ...]:
    """The sizes as a tuple of int. Raises TypeError unless they are whole numbers, ValueError if one is below 1."""
    result = as_ints(sizes, "size")
    for size in result:
        if size < 1:
            raise ValueError(f"a dimension must have at least one element, got size {size} in {list(result)}")
    return result


def as_ints(values: Iterable[int], what: str) -> tuple[int, ...]:
    """The values as a tuple of int (anything with `__index__`). Raises TypeError that names the one that is not."""
    result: list[int] = []
    for value in values:
        try:
            result.append(index(value))
        except TypeError:
            raise TypeError(f"a {what} must be a whole number, got {value!r}") from None
    return tuple(result)


def unknown_label(label: object, labels: tuple[str, ...]) -> LabelError:
    """The error for a label that is not among `labels`."""
    return LabelError(f"no dimension {label!r}; there {describe_labels(labels)}")


def describe_labels(labels: tuple[str, ...]) -> str:
    """ "is only 'gpus'" and the like, to end a sentence that starts with "there"."""
    if not labels:
        return "are no dimensions"
    return f"{'is only' if len(labels) == 1 else 'are'} {', '.join(map(repr, labels))}"


def format_sizes(labels: tuple[str, ...], sizes: tuple[int, ...]) -> str:
    """`{hosts: 2, gpus: 4}`."""
    return "{" + ", ".join(f"{label}: {size}" for label, size in zip(labels, sizes, strict=True)) + "}"
