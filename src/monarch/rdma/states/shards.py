"""Which part of a whole tensor a process has.

It is said for one tensor, or by one rule for all of a state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .blocks import Block

Name = tuple[Any, ...]
"""The keys that lead to a tensor of a state."""


class Shard(NamedTuple):
    """Which part of a whole tensor a process has.

    Attributes:
        start: First index, in every dimension.
        whole: Shape of the whole tensor.
    """

    start: tuple[int, ...]
    whole: tuple[int, ...]

    @staticmethod
    def of(whole: Sequence[int], dim: int, rank: int, count: int) -> Shard:
        """The part of one rank of `count`, if a dimension is divided evenly.

        Args:
            whole: Shape of the whole tensor.
            dim: The divided dimension.
            rank: The rank, from 0.
            count: How many ranks share it.

        Raises:
            ValueError: It can't be.
        """
        return Shard(Split(dim, rank, count).part_of(tuple(whole)).start, tuple(whole))


@dataclass(frozen=True)
class Split:
    """A rule: each tensor is divided evenly along one dimension, and this is one part.

    Tensors without that dimension are whole.

    Attributes:
        dim: Which dimension.
        rank: Which part, from 0.
        count: How many parts there are.
    """

    dim: int
    rank: int
    count: int

    def part_of(self, whole: tuple[int, ...]) -> Block:
        """Return this rank's part of a whole tensor.

        Args:
            whole: Shape of the whole tensor.

        Raises:
            ValueError: The dimension can't be divided evenly.
        """
        start, shape = [0] * len(whole), list(whole)
        if self._divides(whole):
            if whole[self.dim] % self.count:
                raise ValueError(
                    f"dimension {self.dim} of {whole} can't be divided evenly for {self}"
                )
            shape[self.dim] //= self.count
            start[self.dim] = self.rank * shape[self.dim]
        return Block(tuple(start), tuple(shape))

    def around(self, part: tuple[int, ...]) -> Shard:
        """Return the whole tensor of which a tensor of this shape is that part.

        Args:
            part: Shape of the part.
        """
        whole = list(part)
        if self._divides(part):
            whole[self.dim] *= self.count
        return Shard(self.part_of(tuple(whole)).start, tuple(whole))

    def _divides(self, shape: tuple[int, ...]) -> bool:
        if self.dim < 0 or not 0 <= self.rank < self.count:
            raise ValueError(
                f"{self}: expected a dimension of at least 0, and a rank of at least 0 and below"
                " the count"
            )
        return self.dim < len(shape)

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.count}"


Rule = Callable[[Name], "Shard | Split | None"]
Shards = Mapping[Any, "Shard | Split"] | Split | Rule
"""For the tensors of a state: by name (the key, or the tuple of keys that lead to it), the same for
all, or a function of the tuple of keys. None, and a name that a mapping does not have, stand for a
whole tensor.
"""


def rule_of(shards: Shards | None, names: Sequence[Name]) -> Rule:
    """One function for each way to say it.

    Raises:
        KeyError: A mapping has a name that is not among `names`.
        TypeError: It is none of these.
    """
    if shards is None:
        return lambda name: None
    if isinstance(shards, Split):
        return lambda name: shards
    if callable(shards):
        return shards
    if not isinstance(shards, Mapping):
        raise TypeError(
            f"shards={shards!r}: expected a mapping from names to Shard or Split, a Split, or a"
            " function of names"
        )
    by_name = {
        name if isinstance(name, tuple) else (name,): shard for name, shard in shards.items()
    }
    unknown = by_name.keys() - set(names)
    if unknown:
        raise KeyError(
            f"shards name {', '.join(map(shown, unknown))}, which the state does not have"
        )
    return by_name.get


def shown(name: Name) -> str:
    """How a program would reach it."""
    return "state" + "".join(f"[{key!r}]" for key in name)
