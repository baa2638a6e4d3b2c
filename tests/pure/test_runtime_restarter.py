"""What a restarter stops, and what it starts, of meshes that only keep what they were asked."""

from __future__ import annotations

import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from monarch._core.actors.base_cell import Restarter
from monarch._core.calls.promise import completed
from monarch._core.supervision.failure import EXCEPTION, KILLED, Failure
from monarch._core.supervision.ownership import OwnedMesh, Ownership, Restart
from monarch._core.supervision.restart import OneForOne


class Mesh(OwnedMesh):
    def __init__(self, uid: str, are_processes: bool, group: Any) -> None:
        super().__init__(uid, uid, ["process 0", "process 1"], are_processes, str, group)
        self.asked: list[tuple[str, list[int]]] = []

    def stop_ranks(self, ranks: list[int], reason: str) -> Any:
        self.asked.append(("stop", ranks))
        return completed()

    def start_ranks(self, ranks: list[int]) -> list[Any]:
        self.asked.append(("start", ranks))
        return [completed()]


class ActorCell:
    """An owner whose supervision is carried out by the test."""

    instance = "the owner"  # for log records
    hub = SimpleNamespace(thread=partial(threading.Thread, daemon=True))

    def __init__(self) -> None:
        self.ownership: Ownership[Mesh] = Ownership()
        self.carried_out = threading.Event()

    def startable(self, mesh: Mesh, ranks: list[int]) -> list[int]:
        return self.ownership.startable(mesh.uid, ranks)

    def restarted(self, group: Any, plan: Any, error: str) -> None:
        assert not error
        self.carried_out.set()


@pytest.mark.parametrize("meanwhile", [False, True])
def test_an_actor_whose_process_has_ended_meanwhile_is_not_asked_to_stop(meanwhile: bool) -> None:
    cell = ActorCell()
    group = cell.ownership.group(OneForOne())
    procs, actors = Mesh("procs", True, group), Mesh("actors", False, group)
    cell.ownership.created(procs)
    cell.ownership.created(actors)
    failed = Failure(EXCEPTION, "as asked", mesh_uid="actors", rank=0, restarts=True)
    (restart,) = cell.ownership.rank_failed(failed, 0.0)
    assert isinstance(restart, Restart)
    if meanwhile:
        cell.ownership.process_ended(
            "process 0", Failure(KILLED, "ended by SIGKILL", restarts=True), 0.0
        )
    Restarter(cell, group).begin(restart.plan)  # type: ignore[arg-type]
    assert cell.carried_out.wait(60)
    assert actors.asked == ([] if meanwhile else [("stop", [0]), ("start", [0])])
    assert procs.asked == []
