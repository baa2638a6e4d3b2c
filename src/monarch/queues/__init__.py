"""Queues between actors.

`Queue` is bounded, and gives every item once; `ReplayBuffer` has batches drawn from it.

Read `queue`, then `replay`; `sealed` is how an item travels, `spill` where a replay buffer keeps
what its memory does not hold. This speaks public names of `monarch.actor`, and futures of the
plane.

Imports `_core.plane`, `actor`.
"""

from __future__ import annotations

from .._public import publish
from .queue import Empty, Full, Queue, QueueClosed, QueueStatistics
from .replay import ReplayBuffer, ReplayState, ReplayStatistics

__all__ = [
    "Empty", "Full", "Queue", "QueueClosed", "QueueStatistics", "ReplayBuffer", "ReplayState",
    "ReplayStatistics",
]  # fmt: skip

publish(__name__, globals(), __all__)
