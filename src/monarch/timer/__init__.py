"""How long parts of a program take on a rank: `execution_timer`.

Nothing here knows of meshes; use it in remote functions, or by name:
``remote("monarch.timer.execution_timer.execution_timer_start", propagate="inspect")("step")``.

Imports no other package of `monarch`.
"""

from __future__ import annotations

from .execution_timer import (
    ExecutionTimer,
    execution_timer_start,
    execution_timer_stop,
    get_execution_timer_average_ms,
    get_latest_timer_measurement,
)

__all__ = [
    "ExecutionTimer",
    "execution_timer_start",
    "execution_timer_stop",
    "get_execution_timer_average_ms",
    "get_latest_timer_measurement",
]
