"""A gate that holds back the actors of a proc until its bootstrap function has run.

`proc_service` closes and opens it, at the request of the client that spawns the procs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hub.control_service import ControlRequest
from ..hub.spawn_requests import SpawnSpec

if TYPE_CHECKING:
    from .cell import ActorCell


class Gate:
    """Closed while it exists. Actors that the function itself spawns pass it, and those that they
    spawn.

    Attributes:
        bootstrap: The actor that runs the function; None until it is there.
        held: The actors that wait, each with the request that made it.
    """

    def __init__(self) -> None:
        self.bootstrap: ActorCell | None = None
        self.held: list[tuple[ActorCell, ControlRequest]] = []
        self._inside: set[int] = set()

    def open_for(self, bootstrap: ActorCell) -> None:
        self.bootstrap = bootstrap
        self._inside.add(bootstrap.uid)

    def lets_pass(self, spec: SpawnSpec) -> bool:
        if (
            self.bootstrap is None
            or spec.owner.proc != self.bootstrap.hub.address
            or spec.owner.uid not in self._inside
        ):
            return False
        self._inside.add(spec.uid)
        return True

    def hold(self, cell: ActorCell, request: ControlRequest) -> None:
        cell.gate = self
        self.held.append((cell, request))
