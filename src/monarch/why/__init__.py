"""Why does it not go on? The verdict on a running program, from two looks at all its processes.

`gather` looks twice (`monarch.stacks`), `judge` compares, which is pure, and says what it finds as
a `Verdict`; `report` shows it. ``monarch why``, ``job.why()`` and `why` are the ways to ask.

Read `gather`, then `judge`.

Imports `_core.plane`, `actor`, `programs`, `stacks`, `telemetry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .gather import why
    from .model import DEGRADED, FINE, SLOW, STUCK, Standing, Verdict

__getattr__, __dir__ = lazy_names(
    __name__,
    {"gather": ("why",), "model": ("DEGRADED", "FINE", "SLOW", "STUCK", "Standing", "Verdict")},
)

__all__ = ["DEGRADED", "FINE", "SLOW", "STUCK", "Standing", "Verdict", "why"]
