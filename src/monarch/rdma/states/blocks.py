"""Which bytes of one shard are which bytes of another.

There are blocks in the indices of the whole tensor, and runs of bytes in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple


class Block(NamedTuple):
    """A range of indices in every dimension: from `start`, `shape` many."""

    start: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.shape)

    def common(self, other: Block) -> Block | None:
        """The part that both contain."""
        start = tuple(map(max, self.start, other.start))
        end = map(min, self._end(), other._end())
        shape = tuple(stop - begin for begin, stop in zip(start, end, strict=True))
        return None if any(size <= 0 for size in shape) else Block(start, shape)

    def without(self, part: Block) -> Iterator[Block]:
        """Split the rest of this box into boxes after `part`, which lies in it, is cut out."""
        start, shape = list(self.start), list(self.shape)
        for dim, (begin, size) in enumerate(zip(part.start, part.shape, strict=True)):
            end = start[dim] + shape[dim]
            for first, last in ((start[dim], begin), (begin + size, end)):
                if first < last:
                    yield Block(
                        (*start[:dim], first, *start[dim + 1 :]),
                        (*shape[:dim], last - first, *shape[dim + 1 :]),
                    )
            start[dim], shape[dim] = begin, size

    def __str__(self) -> str:
        return (
            "[" + ", ".join(f"{a}:{b}" for a, b in zip(self.start, self._end(), strict=True)) + "]"
        )

    def _end(self) -> tuple[int, ...]:
        return tuple(map(sum, zip(self.start, self.shape, strict=True)))


def cover(wanted: Block, offered: Sequence[Block]) -> tuple[list[tuple[int, Block]], list[Block]]:
    """Choose parts of offered blocks, each element once; and return what none of them has."""
    taken: list[tuple[int, Block]] = []
    missing = [wanted]
    for index, offer in enumerate(offered):
        left: list[Block] = []
        for block in missing:
            part = block.common(offer)
            if part is None:
                left.append(block)
            else:
                taken.append((index, part))
                left.extend(block.without(part))
        missing = left
    return taken, missing


class Rows(NamedTuple):
    """Runs of elements at equal distances, in a source and in a target.

    Attributes:
        source: The first element in the source,
        target: and in the target.
        length: Elements of each run.
        repeats: How many runs there are.
        source_step: Elements from the begin of one run to that of the next, in the source,
        target_step: and in the target.
    """

    source: int
    target: int
    length: int
    repeats: int
    source_step: int
    target_step: int


def rows(part: Block, source: Block, target: Block) -> Iterator[Rows]:
    """Divide `part`, which lies in both, into as few groups of runs as there are.

    Both are stored in row-major order.
    """
    inner = len(part.shape)  # from this dimension on, a run goes on
    length = 1
    while inner > 0:
        inner -= 1
        length *= part.shape[inner]
        if not part.shape[inner] == source.shape[inner] == target.shape[inner]:
            break
    from_steps, to_steps = _steps(source.shape), _steps(target.shape)

    def offset(of: Sequence[int], steps: Sequence[int]) -> int:
        return sum((at - b) * step for at, b, step in zip(part.start, of, steps, strict=True))

    first = offset(source.start, from_steps), offset(target.start, to_steps)
    outer = max(0, inner - 1)
    count, from_step, to_step = (
        (part.shape[outer], from_steps[outer], to_steps[outer]) if inner else (1, 0, 0)
    )
    for index in product(*map(range, part.shape[:outer])):
        yield Rows(
            first[0] + sum(map(int.__mul__, index, from_steps)),
            first[1] + sum(map(int.__mul__, index, to_steps)),
            length, count, from_step, to_step,
        )  # fmt: skip


def _steps(shape: Sequence[int]) -> list[int]:
    """Elements from one index to the next, per dimension."""
    steps = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        steps[dim] = steps[dim + 1] * shape[dim + 1]
    return steps
