"""What an owner hears of: each rank that failed, once; no rank that had stopped."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from helpers.actors import Echo
from monarch.actor import Actor, context, endpoint

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults


class StopsItself(Actor):
    @endpoint
    def stop_yourself(self) -> None:
        context().actor_instance.stop("my work is done")


def test_an_actor_that_had_stopped_itself_has_not_failed_when_its_process_dies(spawn: Spawn, faults: Faults) -> None:
    procs = spawn(1)
    stopped = procs.spawn("stopped", StopsItself)
    echo = procs.spawn("echo", Echo)
    stopped.stop_yourself.broadcast()
    error = stopped.stop_yourself.call_one().exception(timeout=20)
    assert "my work is done" in str(error)
    os.kill(echo.pid.call_one().get(timeout=20), signal.SIGKILL)
    (failure,) = faults.wait_for(1)
    assert failure.mesh_name == "echo"
    procs.stop().get(timeout=20)
    assert len(faults) == 1
