"""Sets of ranks as people write them: ``gpus 0-511,513``, ``hosts 0-1 gpus 0-3``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .._words import ranges

_MOST_RANGES = 24  # in one list: one that is longer than a line is not read


def describe(points: Mapping[int, str]) -> str:
    """Name some ranks of a mesh, by coordinates where they are given.

    Args:
        points: Coordinates as of `LogLine.point`, by rank; empty where a mesh has none.

    Returns:
        One term per block of coordinates, joined by ``"; "``; ``"ranks 0-3,7"`` where the blocks
        would be many.
    """
    parsed = {tuple(coordinates(point).items()) for point in points.values()}
    labels = {tuple(label for label, _ in point) for point in parsed}
    if len(labels) == 1 and len(parsed) == len(points) and labels != {()}:
        (names,) = labels
        blocks = _blocks({tuple(index for _, index in point) for point in parsed})
        if len(blocks) <= 3:
            terms = [
                " ".join(f"{name} {runs(each)}" for name, each in zip(names, block, strict=True))
                for block in blocks
            ]
            return "; ".join(terms)
    return f"ranks {runs(points)}"


def runs(numbers: Iterable[int]) -> str:
    """Write whole numbers as ``0-3,7``; the end of a very long list is counted only."""
    return ranges(numbers, _MOST_RANGES)


def coordinates(point: str) -> dict[str, int]:
    """The coordinates of a rank, by dimension, from their text ``"hosts=1,gpus=3"``.

    Other parts are left out.
    """
    parts = (part.partition("=") for part in point.split(","))
    return {name: int(index) for name, _, index in parts if index.isdecimal()}


def _blocks(indices: set[tuple[int, ...]]) -> list[tuple[tuple[int, ...], ...]]:
    """Blocks that together are these coordinates, without overlap.

    In each, any index of one dimension goes with any of the others.
    """
    if len(next(iter(indices))) == 1:
        return [(tuple(sorted(index for (index,) in indices)),)]
    # the rest of the coordinates, by the first
    inner: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for first, *rest in indices:
        inner.setdefault((first,), set()).add(tuple(rest))
    alike: dict[frozenset[tuple[int, ...]], list[int]] = {}
    for (first,), rests in sorted(inner.items()):
        alike.setdefault(frozenset(rests), []).append(first)
    return [
        (tuple(firsts), *block) for rests, firsts in alike.items() for block in _blocks(set(rests))
    ]
