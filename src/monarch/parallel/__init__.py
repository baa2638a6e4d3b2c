"""Ways to train one network on several meshes, built on distributed tensors: `pipelining`.

Imports `parallel.pipelining`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .pipelining import PipelineParallelism, get_parameter_udf

__all__ = ["PipelineParallelism", "get_parameter_udf"]

__getattr__, __dir__ = lazy_names(__name__, {"pipelining": __all__})
