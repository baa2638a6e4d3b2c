"""Pipelines: a network in stages, each on a mesh, fed with micro-batches that keep all busy.

`schedules` says which stage does what in which order, and knows nothing of tensors; `runtime` does
it. `opaque` is for stages of which the modules were made on the ranks.

Read `schedules`, then `runtime`.

Imports `tensor_engine`, `tensor_engine.tensors`.
"""

from ..._public import publish
from .opaque import get_parameter_udf
from .runtime import PipelineParallelism
from .schedules import SCHEDULES, Action, schedule

__all__ = ["SCHEDULES", "Action", "PipelineParallelism", "get_parameter_udf", "schedule"]

publish(__name__, globals(), __all__)
