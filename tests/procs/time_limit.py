"""Not collected by itself: `test_time_limits` runs it, and reads the report."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from monarch.actor import Actor, Channel, Port, endpoint

if TYPE_CHECKING:
    from conftest import Spawn


class Hangs(Actor):
    @endpoint
    def hang_in_here(self, port: Port[str]) -> None:
        port.send("about to")
        threading.Event().wait()


@pytest.mark.processes("stacks are those of processes")
def test_that_runs_into_its_time_limit(spawn: Spawn) -> None:
    port, about_to = Channel[str].open()
    answer = spawn({"gpus": 2}).spawn("hangs", Hangs).hang_in_here.call(port)
    for _ in range(2):
        about_to.recv().get()
    signal.raise_signal(signal.SIGALRM)  # the time is up
    answer.get()
