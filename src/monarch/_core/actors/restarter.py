"""The execution of restarts.

What still runs is stopped; then processes start, then the actors on them, in the order of their
creation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._lazy import lazy_logger
from ..supervision.restart import RestartGroup, RestartPlan
from . import log
from .context import Context, current

if TYPE_CHECKING:
    from ..wire.address import ProcAddress
    from .contracts import Owned, Owner

logger = lazy_logger("monarch.supervision")

_PAUSE = 0.1  # seconds, for the system to have a thread to give by then


class Restarter:
    """Carries out the plans of one group.

    A plan runs on a thread of its own, as restarts are rare and wait for processes.

    What ends its waits: ranks end within `cleanup_timeout` and `process_exit_timeout`, and start,
    or fail to, within `host_spawn_ready_timeout`; the bootstrap function, like any code of the
    program, takes the time it takes. When the owner ends, its meshes are stopped, and with them
    whatever this waits for.
    """

    def __init__(self, cell: Owner, group: RestartGroup) -> None:
        self._cell = cell
        self._group = group

    def begin(self, plan: RestartPlan) -> None:
        try:
            self._cell.hub.thread(target=self._run, args=(plan,), name="monarch-restart").start()
        except RuntimeError as error:  # the system has no thread to give
            reason = str(error)
            self._cell.hub.poller.call_later(
                _PAUSE, lambda: self._cell.restarted(self._group, plan, reason)
            )

    def _run(self, plan: RestartPlan) -> None:
        current.set(Context(self._cell))
        log.install()
        logger.warning("%s", self._announce(plan))
        error = ""
        try:
            self._carry_out(plan)
        except Exception as problem:  # a process that could not be started, say: one more failure
            error = f"{type(problem).__name__}: {problem}"
        self._cell.restarted(self._group, plan, error)

    def _carry_out(self, plan: RestartPlan) -> None:
        meshes = [
            (mesh, ranks)
            for uid, ranks in plan.ranks.items()
            if (mesh := self._cell.ownership.get(uid))
        ]
        processes = {
            mesh.processes[rank] for mesh, ranks in meshes if mesh.are_processes for rank in ranks
        }
        self._stop(meshes, processes)
        for mesh, ranks in meshes:
            startable = self._cell.startable(mesh, ranks)
            for started in mesh.start_ranks(startable) if startable else ():
                started.get()

    def _stop(self, meshes: list[tuple[Owned, list[int]]], processes: set[ProcAddress]) -> None:
        """End what of the old incarnations still runs; the actors of a process end with it."""
        stopping = []
        for mesh, ranks in meshes:
            own = [
                rank
                for rank in ranks
                if mesh.are_processes or mesh.processes[rank] not in processes
            ]
            own = self._cell.startable(mesh, own)
            if own:
                stopping.append(
                    mesh.stop_ranks(own, "it starts again, as something it belongs to has failed")
                )
        for stopped in stopping:
            stopped.get()

    def _announce(self, plan: RestartPlan) -> str:
        strategy = self._group.strategy
        names = [
            f"{mesh.name}{ranks}"
            for uid, ranks in plan.ranks.items()
            if (mesh := self._cell.ownership.get(uid))
        ]
        why = (
            "; ".join(dict.fromkeys(failure.explain() for failure in plan.failures))
            or "spawned during a restart"
        )
        limit = f"{plan.attempt} of {strategy.max_restarts} within {strategy.within:g}s"
        return f"restarting {', '.join(names)} ({limit}): {why}"
