"""Processes that die at the same time as those that would hear of it."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from helpers.actors import Echo
from helpers.leaks import descendants
from helpers.waiting import wait_until
from monarch.actor import Actor, endpoint, this_host

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("several processes that are killed at one time")


class OwnsAProc(Actor):
    def __init__(self) -> None:
        self.echo = this_host().spawn_procs(name="inner").spawn("inner", Echo)

    @endpoint
    def pids(self) -> tuple[int, int]:
        """Of this process and of the one that it owns."""
        return os.getpid(), self.echo.pid.call_one().get()


def parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("inner_first", [True, False])
def test_the_host_goes_on_when_a_process_dies_together_with_its_owner(
    spawn: Spawn, faults: Faults, inner_first: bool
) -> None:
    survivor = spawn(1).spawn("survivor", Echo)
    outer, inner = spawn(1).spawn("owner", OwnsAProc).pids.call_one().get()
    agent = parent(parent(outer))
    os.kill(agent, signal.SIGSTOP)  # so that it learns of both at once, in this order
    try:
        for pid in (inner, outer) if inner_first else (outer, inner):
            os.kill(pid, signal.SIGKILL)
            # bound now
            wait_until(
                lambda pid=pid: pid not in descendants(agent),  # type: ignore[misc]
                what=f"the end of process {pid}",
            )
    finally:
        os.kill(agent, signal.SIGCONT)
    (failure,) = faults.wait_for(1)
    assert failure.mesh_name == "owner"
    assert survivor.say.call_one("here").get() == "here"
    assert spawn(1).spawn("new", Echo).say.call_one("there").get() == "there"
    assert len(faults) == 1
