"""Processes that live, and that nobody can reach any more."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo
from helpers.faults import Faults
from helpers.waiting import wait_until
from monarch.actor import Actor, SupervisionError, endpoint

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("a process whose sockets are gone")


class Careless(Actor):
    @endpoint
    def become_another_program(self) -> None:
        os.execv("/bin/sleep", ["sleep", "300"])

    @endpoint
    def close_everything(self) -> None:
        os.closerange(3, 4096)
        time.sleep(300)

    @endpoint
    def pid(self) -> int:
        return os.getpid()


# A process that has closed all it has may find that out itself, when its I/O thread next looks at
# the time, and end.
ENDS = {
    "become_another_program": "did not listen any more",
    "close_everything": "did not listen any more|Bad file descriptor",
}


class Caller(Actor):
    @endpoint
    def ask(self, careless: Any, end: str) -> str:
        with pytest.raises(SupervisionError, match=end) as caught:
            careless.pid.call_one().get()
        return str(caught.value)


@pytest.mark.parametrize("how", ["become_another_program", "close_everything"])
def test_a_process_that_stops_listening_is_ended_and_its_callers_told(
    spawn: Spawn, faults: Faults, how: str
) -> None:
    procs = spawn(1, name="careless")
    careless = procs.spawn("careless", Careless)
    caller = spawn(1, name="caller").spawn("caller", Caller)
    descriptors = Path(f"/proc/{careless.pid.call_one().get()}/fd")
    asked, streamed = getattr(careless, how).call_one(), careless.pid.stream()
    wait_until(
        lambda: len(list(descriptors.iterdir())) == 3,
        what="stdin, stdout and stderr to be all that it has",
    )
    newcomer = caller.ask.call_one(careless, ENDS[how])  # which has never had a connection
    with pytest.raises(SupervisionError, match=ENDS[how]):
        asked.get()
    with pytest.raises(SupervisionError, match=ENDS[how]):
        next(streamed).get()
    assert "careless" in newcomer.get()
    failure = faults.wait_for(1)[0]
    assert failure.ranks == [0]
    assert failure.cause == "deaf" or how == "close_everything"
    assert spawn(1).spawn("echo", Echo).say.call_one(2).get() == 2
