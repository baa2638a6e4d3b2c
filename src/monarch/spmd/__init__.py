"""SPMD programs on proc meshes: the environment that `torch.distributed` reads, on every rank.

`elastic` has the actor that sets it. Importing this package imports neither that nor torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .elastic import SPMDActor as SPMDActor
    from .elastic import setup_torch_elastic_env as setup_torch_elastic_env
    from .elastic import setup_torch_elastic_env_async as setup_torch_elastic_env_async

__all__ = ["SPMDActor", "setup_torch_elastic_env", "setup_torch_elastic_env_async"]

__getattr__, __dir__ = lazy_names(
    __name__, {"elastic": ("SPMDActor", "setup_torch_elastic_env", "setup_torch_elastic_env_async")}
)
