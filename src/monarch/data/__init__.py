"""Feeding ranks from loaders that live in actors.

`DataFeed` owns the loaders, and `Batches` is what one rank gets of it.

Loaders make batches ahead, and send them in messages; large buffers go through shared memory on one
host. Batches have numbers, and a rank that asks for a number gets that batch: this makes a position
survive restarts of a loader, of a rank and of the program. `order` has the arithmetic. Nothing here
imports torch.

Read `order`, then `feed`.

Imports `_core.plane`, `actor`.
"""

from __future__ import annotations

from .._public import publish
from .feed import Batches, DataFeed, LoaderInfo

__all__ = ["Batches", "DataFeed", "LoaderInfo"]

publish(__name__, globals(), __all__)
