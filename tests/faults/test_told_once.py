"""What an owner hears of: each rank that failed, once; no rank that had stopped."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from helpers.actors import Echo, open_channel
from helpers.scripts import run_script
from helpers.waiting import wait_gone
from monarch.actor import Actor, MeshFailure, Port, ProcMesh, context, endpoint

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both


class StopsItself(Actor):
    @endpoint
    def stop_yourself(self) -> None:
        context().actor_instance.stop("my work is done")


class Spawner(Actor):
    """Spawns on procs that it is given, and tells what it hears of them."""

    def __init__(self, report: Port[tuple[str, int]]) -> None:
        self.report = report

    @endpoint
    def spawn_on(self, procs: ProcMesh, name: str) -> Echo:
        return procs.spawn(name, Echo)

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.report.send((failure.mesh_name, failure.ranks[0]))
        return True


def test_an_actor_that_had_stopped_itself_has_not_failed_when_its_process_dies(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(1)
    stopped = procs.spawn("stopped", StopsItself)
    echo = procs.spawn("echo", Echo)
    stopped.stop_yourself.broadcast()
    error = stopped.stop_yourself.call_one().exception()
    assert "my work is done" in str(error)
    os.kill(echo.pid.call_one().get(), signal.SIGKILL)
    (failure,) = faults.wait_for(1)
    assert failure.mesh_name == "echo"
    procs.stop().get()
    assert len(faults) == 1


def test_an_owner_hears_of_ranks_spawned_on_processes_known_dead(
    spawn: Spawn, faults: Faults
) -> None:
    procs = spawn(2)
    pid = procs.spawn("first", Echo).slice(gpus=1).pid.call_one().get()
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    faults.wait_for(1)
    # The client knows of the death. The other owner finds out by its first spawn, and knows when it
    # spawns once more.
    second = procs.spawn("second", Echo)
    assert [(failure.mesh_name, failure.ranks) for failure in faults.wait_for(2)] == [
        ("first", [1]),
        ("second", [1]),
    ]
    assert second.slice(gpus=0).say.call_one(1).get() == 1
    port, receiver = open_channel()
    owner = spawn(1).spawn("owner", Spawner, port)
    for name in ("third", "fourth"):
        spawned = owner.spawn_on.call_one(procs, name).get()
        assert receiver.recv().get() == (name, 1)
        assert spawned.slice(gpus=0).say.call_one(1).get() == 1
    assert len(faults) == 2


def test_the_death_of_the_host_agent_is_heard_for_every_proc_talked_to_or_not() -> None:
    result = run_script("""
        import os, signal, threading
        import monarch.actor
        from monarch.actor import Actor, endpoint, this_host

        class Parent(Actor):
            @endpoint
            def pid(self):
                return os.getppid()

        heard = set()
        monarch.actor.unhandled_fault_hook = lambda failure: heard.add((failure.mesh_name, *failure.ranks))
        silent = this_host().spawn_procs(per_host={"n": 2}, name="silent")
        silent.initialized.get()
        spawner = this_host().spawn_procs(name="busy").spawn("parent", Parent).pid.call_one().get()
        with open(f"/proc/{spawner}/stat") as file:
            agent = int(file.read().rpartition(")")[2].split()[1])
        os.kill(agent, signal.SIGKILL)
        due = {("parent", 0), ("silent", 0), ("silent", 1)}
        for _ in range(2000):
            if heard >= due:
                break
            threading.Event().wait(0.01)
        print(sorted(heard))
        monarch.actor.shutdown_context().get()
        """)
    assert result.exit_code == 0, str(result)
    assert result.stdout.strip() == "[('parent', 0), ('silent', 0), ('silent', 1)]", str(result)
    assert result.left_behind == []
