"""The dashboard in the terminal, at a program that ends by an unhandled failure."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from helpers.admin import admin_of
from helpers.terminals import running

pytest.importorskip("textual")
pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")  # here, as it starts threads
pytest.importorskip("arro3.core")

from helpers.dashboards import Seen, watching
from monarch.tui import open_access

pytestmark = pytest.mark.timeout(180)  # each wait has 60 s

PROGRAM = """
    import os, sys
    from monarch.actor import Actor, endpoint, this_host

    class Victim(Actor):
        @endpoint
        def pid(self):
            return os.getpid()

    if __name__ == "__main__":
        victims = this_host().spawn_procs({"gpus": 2}, name="victims").spawn("victim", Victim)
        print("pid", victims.slice(gpus=1).pid.call_one().get(), flush=True)
        sys.stdin.read()
    """


def test_the_failure_that_ends_the_program_stays_on_the_screen(tmp_path: Path) -> None:
    with running(PROGRAM, tmp_path) as program:
        victim = int(program.wait_for("pid").split()[-1])
        with admin_of(program.pid) as (door, _):

            async def typed(seen: Seen) -> None:
                await seen.until("live", "Fine", "victims  2 ranks")
                os.kill(victim, signal.SIGKILL)
                cause = ("Ended by an unhandled failure: ", "SIGKILL", "1 failed")
                await seen.until("ENDED: what is shown is the last of the program", *cause)
                await seen.holds(door.ended.is_set, "the end of the server")
                await seen.until("ENDED", *cause)
                await seen.press("6")
                await seen.until("ENDED", "victim", "SIGKILL")

            watching(open_access(door.url, door.access("view")["token"]), typed)
