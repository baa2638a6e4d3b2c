"""Restart strategies: keep meshes running through failures.

    from monarch.supervision import AllForOne

    procs = this_host().spawn_procs({"gpus": 8}, restart=AllForOne(max_restarts=3, within=600))
    trainers = procs.spawn("trainers", Trainer)

When a rank fails, the strategy says which ranks start again: the processes, then the actors on
them, with the arguments they were spawned with. The mesh keeps its address, so existing
references reach the new incarnation. A call that was in flight fails with SupervisionError; one
that comes during the restart waits for it. A failure that was answered with a restart goes no
further; one more than the strategy allows goes to the owner, as any failure does.
"""

from __future__ import annotations

from typing import Any

from ._core.actors.context import context
from ._core.actors.request import Gather
from ._core.calls.future import Future
from ._core.hub.control import send_record
from ._core.hub.control_records import GetIncarnation
from ._core.mesh.actor_mesh import ActorMesh
from ._core.shape import ValueMesh
from ._core.supervision.restart import AllForOne, OneForOne, RestForOne, Strategy
from ._core.wire.address import SYSTEM
from ._public import publish

__all__ = ["AllForOne", "OneForOne", "RestForOne", "Strategy", "incarnations"]


def incarnations(mesh: Any) -> Future[ValueMesh[int]]:
    """Return a future of every rank's number of restarts after failures.

    0 for the actors first spawned.

    Args:
        mesh: As `spawn` returned it, a slice of it, or a reference that came in a message.

    Raises:
        TypeError: `mesh` is no actor mesh. The future raises SupervisionError where an actor is
            gone for good.
    """
    if not isinstance(mesh, ActorMesh):
        raise TypeError(f"incarnations takes an actor mesh, got {mesh!r}")
    target, cell = mesh._target, context()._cell
    request = Gather(f"incarnations({mesh._name})", SYSTEM, target.procs, target.extent)
    send_record(cell.hub, target.procs, GetIncarnation(target.uid), request, cell.uid)
    return request.future


publish(__name__, globals(), __all__)
