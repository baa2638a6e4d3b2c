"""What holds the actors of a proc back until its bootstrap function has run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hub.contracts import Origin
from ..wire.frame import Frame

if TYPE_CHECKING:
    from .cell import Cell, SpawnSpec

Held = tuple["Cell", Origin, Frame]


class Gate:
    """Closed while it exists. What the function itself spawns passes it, and what that spawns.

    Attributes:
        bootstrap: The actor that runs the function; None until it is there.
        held: The actors that wait, each with the request that made it.
    """

    def __init__(self) -> None:
        self.bootstrap: Cell | None = None
        self.held: list[Held] = []
        self._inside: set[int] = set()

    def open_for(self, bootstrap: Cell) -> None:
        self.bootstrap = bootstrap
        self._inside.add(bootstrap.uid)

    def lets_pass(self, spec: SpawnSpec) -> bool:
        if (
            self.bootstrap is None
            or spec.owner.proc != self.bootstrap.node.address
            or spec.owner.uid not in self._inside
        ):
            return False
        self._inside.add(spec.uid)
        return True

    def hold(self, cell: Cell, origin: Origin, frame: Frame) -> None:
        cell.gate = self
        self.held.append((cell, origin, frame))
