"""Checks of labels, sizes and indices, and the errors that they raise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import index


class LabelError(ValueError, KeyError):
    """A label that a mesh does not have, or that a request must give and does not.

    Both a ValueError, which old programs catch, and a KeyError, which `Mapping.get` needs.
    """

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return ValueError.__str__(self)


class OutOfRangeError(IndexError, ValueError):
    """A position outside its dimension or mesh.

    Both an IndexError and a ValueError, because programs catch one or the other.
    """


class NegativeIndexError(OutOfRangeError, OverflowError):
    """A negative index given to `Shape.at`.

    An OverflowError too, as Monarch programs expect there.
    """


def as_labels(labels: Iterable[str]) -> tuple[str, ...]:
    """The labels as a tuple.

    Raises TypeError unless they are strings, ValueError if one appears twice.
    """
    if isinstance(labels, str):
        # Would otherwise be one dimension per character.
        raise TypeError(
            f"labels must be a sequence of strings, got the single string {labels!r}; write"
            f" [{labels!r}]"
        )
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
        raise ValueError(
            f"dimension labels must be distinct, got {twice!r} twice in {list(labels)}"
        )


def as_sizes(sizes: Iterable[int]) -> tuple[int, ...]:
    """The sizes as a tuple of int.

    Raises TypeError unless they are whole numbers, ValueError if one is below 1.
    """
    result = as_ints(sizes, "size")
    for size in result:
        if size < 1:
            raise ValueError(
                f"a dimension must have at least one element, got size {size} in {list(result)}"
            )
    return result


def as_ints(values: Iterable[int], what: str) -> tuple[int, ...]:
    """The values as a tuple of int (anything with `__index__`).

    Raises TypeError that names the one that is not.
    """
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
    return (
        "{" + ", ".join(f"{label}: {size}" for label, size in zip(labels, sizes, strict=True)) + "}"
    )


def pick_index(label: str, size: int, i: object) -> int:
    """`i` as an index of a dimension.

    Raises TypeError if it is no whole number, `OutOfRangeError` if it is outside.
    """
    try:
        checked = index(i)  # type: ignore[arg-type]  # what cannot be an index is reported below
    except TypeError:
        raise TypeError(
            f"dimension {label!r} is selected by an int or a Python slice, got {i!r}"
        ) from None
    if not 0 <= checked < size:
        raise OutOfRangeError(
            f"index {checked} is out of range for dimension {label!r} of size {size}, 0 to"
            f" {size - 1}"
        )
    return checked


def pick_range(label: str, size: int, key: slice) -> range:
    """The indices that a Python slice selects.

    Raises ValueError if there are none or the step is below 1.
    """
    if not isinstance(key, slice):
        raise TypeError(
            f"a range of dimension {label!r} is selected by a Python slice, got {key!r}"
        )
    try:
        if key.step is not None and index(key.step) < 1:
            raise ValueError(
                f"the step must be at least 1, got {_show(key)} for dimension {label!r}: a mesh"
                " keeps its order"
            )
        picked = range(size)[key]
    except TypeError:
        raise TypeError(
            f"the bounds of a slice must be whole numbers, got {_show(key)} for dimension {label!r}"
        ) from None
    if not picked:
        raise ValueError(
            f"{_show(key)} selects nothing (an empty range) of dimension {label!r} of size {size}"
        )
    return picked


def _show(key: slice) -> str:
    return ":".join("" if part is None else str(part) for part in (key.start, key.stop, key.step))


def check_coordinates(
    labels: Sequence[str], sizes: Sequence[int], coords: dict[str, int]
) -> list[int]:
    """The indices in the order of `labels`, one for each.

    Raises `LabelError`, `OutOfRangeError` or TypeError.
    """
    missing = [label for label in labels if label not in coords]
    if missing:
        raise LabelError(f"need an index for each dimension, missing {missing}; got {list(coords)}")
    extra = [label for label in coords if label not in labels]
    if extra:
        raise LabelError(f"got extra dimensions {extra}; there {describe_labels(tuple(labels))}")
    return [
        pick_index(label, size, coords[label]) for label, size in zip(labels, sizes, strict=True)
    ]
