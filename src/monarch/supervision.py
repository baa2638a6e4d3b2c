"""Restart strategies: keep meshes running through failures.

    from monarch.supervision import AllForOne

    procs = this_host().spawn_procs({"gpus": 8}, restart=AllForOne(max_restarts=3, within=600))
    trainers = procs.spawn("trainers", Trainer)

When a rank fails, the strategy says which ranks start again: the processes, then the actors on
them, with the arguments they were spawned with. The mesh keeps its address, so whoever holds a
reference reaches the new incarnation. A call that was in flight fails with SupervisionError; one
that comes during the restart waits for it. A failure that was answered with a restart goes no
further; one more than the strategy allows goes to the owner, as any failure does.
"""

from __future__ import annotations

from ._core.mesh.actor_mesh import incarnations
from ._core.supervision.restart import AllForOne, OneForOne, RestForOne, Strategy
from ._public import publish

__all__ = ["AllForOne", "OneForOne", "RestForOne", "Strategy", "incarnations"]

publish(__name__, globals(), __all__)
