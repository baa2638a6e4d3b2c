"""SPMD programs: scripts for `torchrun`, as they are, on hosts or on a proc mesh.

    elastic   the variables that `torch.distributed` reads, set on the procs of a mesh
    options   the command line of `torchrun`
    launcher  a script on every rank of some hosts, started again when it fails; `monarch run`
    rank      one rank of it: a program of its own, and what it is told
    numa      a program on the cores near a GPU, for ``--numa-binding``

Importing this package imports none of them, nor torch.

Read `launcher`, then `rank`.

Imports `_core.plane`, `_startup.monarch_startup`, `actor`, `stacks`.
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
