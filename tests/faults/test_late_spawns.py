"""Actors that are spawned on a process which is just being replaced."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest

from helpers.waiting import wait_until
from monarch._core.actors.proc_service import spawn_record
from monarch._core.hub.control import send_record
from monarch._core.supervision.restart import RestartGroup
from monarch.actor import Actor, context, endpoint
from monarch.supervision import OneForOne

if TYPE_CHECKING:
    from conftest import Spawn


class Counter(Actor):
    def __init__(self) -> None:
        self.count = 0

    @endpoint
    def up(self) -> int:
        self.count += 1
        return self.count

    @endpoint
    def pid(self) -> int:
        return os.getpid()


def test_a_spawn_that_a_later_incarnation_has_overtaken_replaces_nothing(spawn: Spawn) -> None:
    counters: Any = spawn(1, restart=OneForOne()).spawn("counters", Counter)
    assert counters.up.call_one().get() == 1
    owned = counters._owned
    for incarnation, count in [(1, 1), (0, 2), (2, 1), (1, 2)]:
        spec = owned.spec._replace(incarnation=incarnation, rank=0)
        hub = context()._cell.hub
        send_record(hub, owned.processes[0], spawn_record(spec, False, owned.init))
        assert counters.up.call_one().get() == count


@pytest.mark.torch
@pytest.mark.may_keep("descriptors", "threads")
@pytest.mark.processes("the tensor engine has a worker on each process")
def test_an_engine_made_while_a_rank_is_replaced_is_not_used_after(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from monarch import inspect

    procs = spawn(2, restart=OneForOne(max_restarts=100, within=600))
    counters: Any = procs.spawn("counters", Counter)
    ownership = context()._cell.ownership
    replaced, forgotten, made = RestartGroup.replaced, threading.Event(), threading.Event()

    def replaced_when_made(self: Any, ranks: Any) -> None:
        forgotten.set()
        made.wait()
        replaced(self, ranks)

    monkeypatch.setattr(RestartGroup, "replaced", replaced_when_made)

    def total() -> float:
        with procs.activate():
            return float(inspect(torch.ones(1)).item())

    def plan() -> Any:
        return counters._owned.group._plan

    pid = counters.slice(gpus=0).pid.call_one().get()
    os.kill(pid, signal.SIGKILL)
    forgotten.wait()  # nothing more is told of the end before
    with procs.activate():  # an engine, one of whose workers has yet to start
        made.set()
    workers = ownership.meshes()[-1]
    wait_until(lambda: workers.incarnation(0) and not plan(), what="rank 0 to be replaced")
    assert total() == 1
