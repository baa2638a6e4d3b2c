"""Procs that have nothing to do."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.actors import AsyncRecorder, Echo
from monarch._proc_stat import SYSTEM_TICKS, USER_TICKS, stat_of

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [pytest.mark.timeout(120), pytest.mark.processes("what idle processes cost")]

COUNT = 64
WATCHED = 3.0  # seconds
TICK = 1 / os.sysconf("SC_CLK_TCK")


def activity(pids: list[int]) -> tuple[int, float]:
    """How often threads of these processes have gone to sleep, and the processor time that they
    have used, in seconds.
    """
    sleeps, ticks = 0, 0
    for pid in pids:
        fields = stat_of(pid)
        ticks += int(fields[USER_TICKS]) + int(fields[SYSTEM_TICKS])
        for task in Path(f"/proc/{pid}/task").iterdir():
            status = (task / "status").read_text()
            sleeps += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return sleeps, ticks * TICK


@pytest.mark.parametrize("kind", [Echo, AsyncRecorder], ids=["sync", "async"])
def test_idle_procs_use_no_processor(spawn: Spawn, kind: type) -> None:
    procs = spawn({"gpus": COUNT})
    echo = procs.spawn("echo", Echo)
    procs.spawn("other", kind).initialized.get()
    pids = echo.pid.call().get().values()
    # what a proc does once, soon after its start; and the looks at actors, which end with their
    # activity
    time.sleep(3)
    before = activity(pids)
    time.sleep(WATCHED)
    after = activity(pids)
    # a thread that wakes up once a second would do so 200 times
    assert after[0] - before[0] <= COUNT // 8
    assert after[1] - before[1] <= COUNT * TICK / 8
