"""Which batch comes from which loader and goes to which rank: pure arithmetic.

Batches are numbered from 0. Number ``n`` is item ``n // loaders`` of loader ``n % loaders``, and
goes to rank ``n % world_size``. The number of loaders is a multiple of that of ranks, so each
loader serves one rank, and the numbers mean the same batches however many ranks share them.
"""

from __future__ import annotations

from typing import NamedTuple

from .._arguments import whole


class Turn(NamedTuple):
    """The loader and the item that a rank's next batch comes from.

    Attributes:
        loader: Which loader, from 0.
        item: Which of its items, from 0.
    """

    loader: int
    item: int


class Order:
    """The batches of one rank.

    Args:
        loaders: How many loaders there are.
        rank: Of 0 to ``world_size - 1``.
        world_size: How many ranks share the batches.

    Raises:
        TypeError, ValueError: These are no whole numbers, or do not fit.
    """

    def __init__(self, loaders: int, rank: int, world_size: int) -> None:
        whole(world_size, "world_size")
        if whole(rank, "rank", least=0) >= world_size:
            raise ValueError(f"rank must be less than world_size={world_size}, got {rank}")
        if loaders % world_size:
            raise ValueError(
                f"{loaders} loaders can't be shared by {world_size} ranks evenly: make their number"
                f" a multiple of {world_size}"
            )
        self.rank = rank
        self.world_size = world_size
        self._loaders = loaders

    def turn(self, position: int) -> Turn:
        """The loader and item of this rank's batch, in the step that begins at `position`.

        All ranks together have been given `position` batches before.
        """
        item, loader = divmod(position + self.rank, self._loaders)
        return Turn(loader, item)

    def checked(self, position: int) -> int:
        """A position at which a step begins.

        Raises:
            TypeError, ValueError: It is none.
        """
        if whole(position, "position", least=0) % self.world_size:
            raise ValueError(
                f"position must be a multiple of world_size={self.world_size}, as steps begin"
                f" there, got {position}"
            )
        return position
