"""Training that goes on when ranks die.

Its ranks form a group for `torch.distributed` that shrinks and grows.

    group        `ElasticGroup`, what a program holds
    coordinator  the actor beside it: who is in the next world, and when it begins
    member       the actor on each rank, with a thread for the user's code
    world        what that code sees: its rank, its steps, its part of the data
    state        weights and the rest from a living rank to a new one, by `monarch.rdma`
    publishing   weights from ranks to who computes with them, such as generators
    `monarch._connections` brings a rank out of a collective that can't end

Importing this package imports none of them, nor torch.

Read `group`, then `coordinator`, `member` and `world`.

Imports `_core.plane`, `actor`, `rdma`, `rdma.states`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .group import ElasticGroup as ElasticGroup
    from .group import Trainer as Trainer
    from .publishing import StateBoard as StateBoard
    from .publishing import StateFollower as StateFollower
    from .publishing import StatePublisher as StatePublisher
    from .world import Batches as Batches
    from .world import Report as Report
    from .world import World as World

__all__ = [
    "Batches", "ElasticGroup", "Report", "StateBoard", "StateFollower", "StatePublisher", "Trainer",
    "World",
]  # fmt: skip

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "group": ("ElasticGroup", "Trainer"),
        "publishing": ("StateBoard", "StateFollower", "StatePublisher"),
        "world": ("Batches", "Report", "World"),
    },
)
