"""What actors start, or fork, and do not end: it ends with their proc, unless it has asked for a
session of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from helpers.scripts import program, run_script
from helpers.waiting import is_alive, wait_gone
from monarch.actor import Actor, SupervisionError, endpoint
from monarch.config import configured

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("programs that a process has started")

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True);"
    " time.sleep(100)"
)


class Starts(Actor):
    @endpoint
    def session(self) -> tuple[int, int, int]:
        return os.getpid(), os.getpgid(0), os.getsid(0)

    @endpoint
    def program(self, session: bool = False) -> int:
        return subprocess.Popen(["sleep", "100"], start_new_session=session).pid

    @endpoint
    def stubborn(self) -> int:
        started = subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE)
        assert started.stdout is not None
        started.stdout.readline()
        return started.pid

    @endpoint
    def fork(self) -> int:
        pid = os.fork()
        if pid == 0:
            time.sleep(100)
            os._exit(0)
        return pid

    @endpoint
    def die(self) -> None:
        os._exit(3)


@pytest.mark.parametrize("what", ["program", "stubborn", "fork"])
def test_what_an_actor_has_started_is_gone_when_its_procs_are_stopped(
    spawn: Spawn, what: str
) -> None:
    procs = spawn(1)
    pid = getattr(procs.spawn("starts", Starts), what).call_one().get()
    assert is_alive(pid)
    procs.stop().get()
    assert not is_alive(pid)


def test_what_an_actor_has_started_ends_with_a_proc_that_dies(spawn: Spawn, faults: Faults) -> None:
    starts = spawn(1).spawn("starts", Starts)
    pid = starts.program.call_one().get()
    with pytest.raises(SupervisionError):
        starts.die.call_one().get()
    wait_gone(pid)
    faults.wait_for(1)


@pytest.mark.parametrize("own", [False, True])
def test_procs_are_sessions_of_their_own_where_asked_for_and_end_as_ever(
    spawn: Spawn, own: bool
) -> None:
    with configured(proc_sessions=own):
        procs = spawn(2)
    starts = procs.spawn("starts", Starts)
    pids = starts.program.call().get().values()
    found = starts.session.call().get().values()
    assert [pid == group for pid, group, _ in found] == [True, True]
    assert [pid == session for pid, _, session in found] == [own, own]
    procs.stop().get()
    assert not any(map(is_alive, pids))


@pytest.mark.parametrize("how", ["session", "knob"])
def test_a_program_that_is_to_stay_stays(spawn: Spawn, how: str) -> None:
    with configured(end_process_groups=how != "knob"):
        procs = spawn(1)
    pid = procs.spawn("starts", Starts).program.call_one(how == "session").get()
    try:
        procs.stop().get()
        assert is_alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
        wait_gone(pid)


def test_nothing_that_actors_have_started_outlives_a_killed_client() -> None:
    result = run_script(
        program("""
            import os, signal, subprocess
            from monarch.actor import Actor, endpoint, this_host

            class Starts(Actor):
                @endpoint
                def program(self):
                    return subprocess.Popen(["sleep", "100"]).pid

            if __name__ == "__main__":
                this_host().spawn_procs(per_host={"n": 2}).spawn("starts", Starts).program.call().get()
                os.kill(os.getpid(), signal.SIGKILL)
            """)
    )
    assert result.exit_code == -signal.SIGKILL and result.left_behind == [], str(result)


@pytest.mark.parametrize(
    ("who", "stopped"), [("agent", False), ("agent", True), ("spawner", False)]
)
def test_what_an_actor_has_started_ends_with_a_host_whose_own_process_is_killed(
    who: str, stopped: bool
) -> None:
    result = run_script(
        program(f"""
            import os, signal, subprocess
            import monarch.actor
            from helpers.processes import agent_of, spawner_of, wait_stopped
            from helpers.waiting import wait_gone
            from monarch.actor import Actor, endpoint, this_host
            from monarch.config import configured

            class Starts(Actor):
                @endpoint
                def program(self):
                    return os.getpid(), subprocess.Popen(["sleep", "100"]).pid

            def start():
                return this_host().spawn_procs(per_host={{"n": 2}}).spawn("starts", Starts)

            if __name__ == "__main__":
                monarch.actor.unhandled_fault_hook = lambda failure: None
                ending = start()
                with configured(end_process_groups=False):
                    staying = start()
                ended, stays = ending.program.call().get(), staying.program.call().get()
                proc = ended.item(n=0)[0]
                victim = {who}_of(proc)
                if {stopped}:
                    os.kill(spawner_of(proc), signal.SIGSTOP)
                    wait_stopped(spawner_of(proc))
                os.kill(victim, signal.SIGKILL)
                for proc, started in ended.values():
                    wait_gone(proc)
                    wait_gone(started)
                for proc, started in stays.values():
                    wait_gone(proc)
                    os.kill(started, signal.SIGKILL)  # which has to find it
                print("done")
            """)
    )
    assert result.stdout == "done\n" and result.left_behind == [], str(result)
