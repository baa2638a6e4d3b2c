"""Carries out restarts: stop what still runs, start processes, then the actors on them, in the order of their creation."""

from __future__ import annotations

import logging
import threading

from ..runtime.base_cell import BaseCell, Owned
from ..runtime.context import Context, current
from ..supervision.restart import Plan, RestartGroup, Strategy

logger = logging.getLogger("monarch.supervision")


class Restarter:
    """One per group. A plan runs on a thread of its own, as restarts are rare and wait for processes.

    What ends its waits: ranks end within `cleanup_timeout` and `process_exit_timeout`, and start, or fail to, within
    `host_spawn_ready_timeout`; the bootstrap function, like any code of the program, takes the time it takes. When the
    owner ends, its meshes are stopped, and with them whatever this waits for.
    """

    def __init__(self, cell: BaseCell, group: RestartGroup) -> None:
        self._cell = cell
        self._group = group

    def begin(self, plan: Plan) -> None:
        threading.Thread(target=self._run, args=(plan,), name="monarch-restart", daemon=True).start()

    def _run(self, plan: Plan) -> None:
        current.set(Context(self._cell))
        logger.warning("%s", self._announce(plan))
        error = ""
        try:
            self._carry_out(plan)
        except Exception as problem:  # a process that could not be started, say: one more failure
            error = f"{type(problem).__name__}: {problem}"
        self._cell.restarted(self._group, plan, error)

    def _carry_out(self, plan: Plan) -> None:
        meshes = [(mesh, ranks) for uid, ranks in plan.ranks.items() if (mesh := self._cell.ownership.get(uid))]
        processes = {mesh.processes[rank] for mesh, ranks in meshes if mesh.are_processes for rank in ranks}
        self._stop(meshes, processes)
        for mesh, ranks in meshes:
            if mesh.uid in self._cell.ownership:  # not stopped meanwhile
                for started in mesh.start_ranks(ranks):
                    started.get()

    @staticmethod
    def _stop(meshes: list[tuple[Owned, list[int]]], processes: set[object]) -> None:
        """End what of the old incarnations still runs; the actors of a process end with it."""
        stopping = []
        for mesh, ranks in meshes:
            own = [rank for rank in ranks if mesh.are_processes or mesh.processes[rank] not in processes]
            if own:
                stopping.append(mesh.stop_ranks(own, "it starts again, as something it belongs to has failed"))
        for stopped in stopping:
            stopped.get()

    def _announce(self, plan: Plan) -> str:
        strategy = self._group.strategy
        names = [f"{mesh.name}{ranks}" for uid, ranks in plan.ranks.items() if (mesh := self._cell.ownership.get(uid))]
        why = "; ".join(dict.fromkeys(failure.explain() for failure in plan.failures))
        limit = f"{plan.attempt} of {strategy.max_restarts} within {strategy.within:g}s"
        return f"restarting {', '.join(names)} ({limit}): {why}"


def restart_group(cell: BaseCell, strategy: Strategy) -> RestartGroup:
    """The group of a strategy in what an actor owns; made at its first use."""
    for group in list(cell.restarters):
        if group.strategy is strategy:
            return group
        if not group.members and not group.busy:  # all of it was stopped
            del cell.restarters[group]
    group = RestartGroup(strategy)
    cell.restarters[group] = Restarter(cell, group)
    return group
