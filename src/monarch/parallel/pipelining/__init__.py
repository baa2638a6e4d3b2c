"""Pipelines: a network in stages, one mesh for each, and a batch in micro-batches that keep all of them busy.

`schedules` says which stage does what in which order, and knows nothing of tensors; `runtime` does it.
"""

from .runtime import PipelineParallelism
from .schedules import SCHEDULES, Action, schedule

__all__ = ["SCHEDULES", "Action", "PipelineParallelism", "schedule"]
