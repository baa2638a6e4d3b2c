"""`lightning.Trainer` on hosts of ours.

The call is `Trainer(devices=8, num_nodes=4, strategy=MeshStrategy(hosts))`.

Needs the extra `lightning`. Importing this package imports neither that nor torch.

Imports `actor`, `spmd`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .strategy import MeshStrategy as MeshStrategy

__all__ = ["MeshStrategy"]

__getattr__, __dir__ = lazy_names(__name__, {"strategy": ("MeshStrategy",)})
