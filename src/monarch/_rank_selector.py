"""A selection of ranks, written as text: ``0,3-5``, ``::2``, ``hosts=1,gpus=0:4``.

The options of commands (`--ranks`), of logs and of the debugger are read here. Programs slice
meshes instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .actor import Extent, Point

_NUMBERS = re.compile(r"(\d+)|(\d+)-(\d+)|(\d*):(\d*)(?::(\d*))?", re.ASCII)
_LABEL = re.compile(r"([^\s=,():]+)\s*=\s*(.*)", re.DOTALL)
_GROUP = re.compile(r"\(([^()]*)\)")
_LONGEST = 4096  # characters of an expression


class RankSelector:
    """The ranks that an expression selects, for meshes of any size.

    Ranks are a number ``3``, both ends of a range ``3-5``, a slice ``start:stop:step`` with any
    part left out, or several of these with commas between them. After ``name=`` these are
    coordinates in that dimension. A rank must match in each dimension that is named:
    ``hosts=1,gpus=0:4``, ``gpus=(0,2)``.

    Args:
        text: The expression.

    Raises:
        TypeError: It is no string.
        ValueError: It is no such expression; the message names the wrong part.
    """

    __slots__ = ("_ranges", "_text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(
                f"ranks are written as a string such as '0,3-5' or 'gpus=0:4', got {text!r}"
            )
        self._text = text.strip()
        self._ranges = _parse(self._text)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The dimensions that it names; none where it is about ranks."""
        return tuple(label for label in self._ranges if label)

    def matches(self, rank: int, coordinates: Mapping[str, int]) -> bool:
        """Check one rank.

        Args:
            rank: Its number.
            coordinates: Its position, by dimension. Where a dimension is missing, a selector that
                names it does not match.
        """
        for label, ranges in self._ranges.items():
            at = coordinates.get(label) if label else rank
            if at is None or not any(at in some for some in ranges):
                return False
        return True

    def ranks(self, extent: Extent) -> list[int]:
        """Return the selected ranks of a mesh, in order.

        Raises:
            LabelError: The mesh does not have a named dimension.
            ValueError: None of its ranks is selected.
        """
        for label in self.dimensions:
            try:
                _ = extent[label]
            except KeyError as error:
                raise type(error)(f"{self._text!r}: {error}") from None
        found = [
            rank for rank in range(extent.nelements) if self.matches(rank, Point(rank, extent))
        ]
        if not found:
            raise ValueError(
                f"{self._text!r} selects none of {extent}, which has ranks 0 to"
                f" {extent.nelements - 1}"
            )
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RankSelector) and self._ranges == other._ranges

    def __hash__(self) -> int:
        return hash(tuple(self._ranges.items()))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"RankSelector({self._text!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return RankSelector, (self._text,)


_ENDLESS = 1 << 62  # stands for the end of a range that has none


def _parse(text: str) -> dict[str, tuple[range, ...]]:
    """Ranges by dimension; those of ranks have an empty name."""
    if len(text) > _LONGEST:
        raise ValueError(f"ranks are written in at most {_LONGEST} characters, got {len(text)}")
    found: dict[str, tuple[range, ...]] = {}
    for part in map(str.strip, re.split(r",(?![^()]*\))", text)):  # not those in parentheses
        named = _LABEL.fullmatch(part)
        label, numbers = named.groups() if named else ("", part)
        if label in found and label:
            raise _error(text, f"{label!r} is there twice")
        group = _GROUP.fullmatch(numbers) if label else None
        items = group[1].split(",") if group else [numbers]
        found[label] = found.get(label, ()) + tuple(_range(text, item.strip()) for item in items)
    if "" in found and len(found) > 1:
        raise _error(
            text,
            "it has both numbers of ranks and coordinates; several coordinates are written"
            " gpus=(0,2)",
        )
    return found


def _range(text: str, item: str) -> range:
    match = _NUMBERS.fullmatch(item)
    if match is None:
        raise _error(
            text, f"{item!r} is no number or range" if item else "a number or range is missing"
        )
    one, first, last, start, stop, step = match.groups()
    if one is not None:
        return range(int(one), int(one) + 1)
    if first is not None:
        found = range(int(first), int(last) + 1)
    else:
        if step and not int(step):
            raise _error(text, f"the step of {item!r} is at least 1")
        found = range(int(start or 0), int(stop or _ENDLESS), int(step or 1))
    if not found:
        raise _error(text, f"{item!r} is empty")
    return found


def _error(text: str, why: str) -> ValueError:
    return ValueError(
        f"{text[:200]!r} does not say which ranks: {why}. Examples: 0,3-5 or ::2 or"
        " hosts=1,gpus=0:4"
    )
