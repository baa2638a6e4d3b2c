"""A mesh as operations need it: ranks of an engine in a shape, and the stream that is active.

`device_mesh` makes tensors on it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from ..._core.plane import ShapedMesh
from ..instructions import MAIN
from .streams import active as active_stream

if TYPE_CHECKING:
    from ..._core.plane import Shape
    from ..controller.engine import Engine, Ranks


class RankMesh(ShapedMesh):
    """Ranks of an engine.

    Attributes:
        ndslice: The ranks, as an `NDSlice`.
        names: The labels, outermost first.
    """

    def __init__(self, engine: Engine, shape: Shape) -> None:
        self.engine = engine
        self._shape = shape
        self.group = engine.group(shape.ndslice.ranks())

    @property
    def lane(self) -> Ranks:
        """The destination of instructions: its ranks, and the active stream."""
        stream = active_stream.get().number
        return self.group if stream == MAIN else self.engine.group(self.group.ranks, stream)

    @property
    def ndslice(self) -> Any:
        return self._shape.ndslice

    @property
    def names(self) -> list[str]:
        return self._shape.labels


active: ContextVar[RankMesh | None] = ContextVar("monarch_active_mesh", default=None)
"""The mesh of operations that have no distributed tensor among their arguments: see
`activation`.
"""
