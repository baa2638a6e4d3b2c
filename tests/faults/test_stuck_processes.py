"""Processes that hang instead of dying: the spawner in an import, a proc that never serves.

Every wait has an end.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from helpers.actors import Echo
from helpers.scripts import run_script
from monarch.actor import SupervisionError, this_host

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("processes that can not be ended")

BLOCKS = {"blocks_on_import.py": "import time\nprint('importing', flush=True)\ntime.sleep(3600)\n"}
STUCK = """
    import sys, time
    from monarch._core.client import root_cell
    from monarch.actor import Actor, endpoint, this_host
    from monarch.config import configure

    class Echo(Actor):
        @endpoint
        def say(self, value):
            return value

    root_cell._START_BOUND = 1.0  # and not 10 s: for so long the end of a program waits for procs that start
    configure(preload=["blocks_on_import"], cleanup_timeout="500ms", process_exit_timeout="500ms")
    procs = this_host().spawn_procs()
    echo = procs.spawn("echo", Echo)
    pending = echo.say.call_one(1)
"""


def test_procs_can_be_stopped_while_the_spawner_is_stuck_in_an_import() -> None:
    result = run_script(
        STUCK
        + """
    procs.stop().get()
    try:
        pending.get()
    except Exception as error:
        print("pending call:", type(error).__name__)
    """,
        files=BLOCKS,
    )
    assert result.exit_code == 0, str(result)
    assert "pending call: SupervisionError" in result.stdout, str(result)
    assert result.left_behind == [], str(result)


def test_a_program_ends_though_the_spawner_is_stuck_in_an_import() -> None:
    result = run_script(STUCK, files=BLOCKS)
    assert result.exit_code == 0, str(result)
    assert result.left_behind == [], str(result)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_stays_when_a_client_with_a_stuck_spawner_is_ended(number: signal.Signals) -> None:
    result = run_script(
        STUCK + "    print('waiting', flush=True)\n    pending.get()\n",
        files=BLOCKS,
        signal_after=("waiting", number),
        settle=8.0,
    )
    assert result.after_signal is not None
    assert result.left_behind == [], str(result)


def test_a_call_to_a_proc_that_a_stuck_spawner_does_not_start_times_out() -> None:
    result = run_script(
        STUCK
        + """
    try:
        pending.get(timeout=0.3)
    except TimeoutError:
        print("timed out")
    """,
        files=BLOCKS,
    )
    assert result.exit_code == 0, str(result)
    assert "timed out" in result.stdout


def test_a_program_that_never_serves_is_killed_and_its_rank_named() -> None:
    result = run_script("""
        import time
        import monarch.actor
        from monarch._core.mesh.bootstrap import BootstrapCommand
        from monarch.actor import Actor, SupervisionError, endpoint, this_host
        from monarch.config import configure

        class Echo(Actor):
            @endpoint
            def say(self, value):
                return value

        monarch.actor.unhandled_fault_hook = lambda failure: None
        configure(host_spawn_ready_timeout="500ms")
        procs = this_host().spawn_procs(name="sleepers", bootstrap_command=BootstrapCommand("/bin/sleep", None, ("3600",)))
        call = procs.spawn("echo", Echo).say.call_one(1)
        try:
            procs.initialized.get()
        except ValueError as error:
            print("initialized:", error)
        try:
            call.get()
        except SupervisionError as error:
            print("call:", str(error).replace("\\n", " "))
        """)
    assert result.exit_code == 0, str(result)
    initialized, call = result.stdout.splitlines()
    assert (
        "initialized:" in initialized
        and "host_spawn_ready_timeout" in initialized
        and "sleepers[0]" in initialized
    )
    assert "call:" in call and "sleepers[0]" in call
    assert result.left_behind == []


def test_procs_that_wait_for_an_import_of_their_host_say_for_which() -> None:
    result = run_script("""
        import os
        import sys
        from pathlib import Path
        import monarch.actor
        from monarch.actor import this_host
        from monarch.config import configure

        monarch.actor.unhandled_fault_hook = lambda failure: None
        os.mkfifo("gate")
        Path("slow_to_import.py").write_text("open('gate').read()")
        sys.path.append(os.getcwd())
        configure(host_spawn_ready_timeout="500ms", preload=["slow_to_import"])
        procs = this_host().spawn_procs(name="late")
        print(procs.initialized.exception())
        open("gate", "w").close()
        """)
    assert result.exit_code == 0, str(result)
    assert "not ready: late[0]; the host still imports slow_to_import\n" in result.stdout
    assert result.left_behind == []


def test_many_large_spawn_requests_while_the_spawner_forks_do_not_deadlock() -> None:
    # Each request is far larger than the buffer of the socket to the spawner, which at that time
    # sends a lot itself.
    result = run_script("""
        import os
        os.environ["MONARCH_TEST_BIG"] = "x" * 100_000
        from monarch.actor import this_host
        meshes = [this_host().spawn_procs(per_host={"g": 20}) for _ in range(4)]
        for mesh in meshes:
            assert mesh.initialized.get()
        print("all up")
        """)
    assert result.exit_code == 0, str(result)
    assert "all up" in result.stdout
    assert result.left_behind == []


def test_procs_stopped_during_their_spawn_are_gone_and_callers_told(
    spawn: Spawn,
) -> None:
    survivor = spawn(1).spawn("survivor", Echo)
    for count in (1, 8):
        for _ in range(3):
            procs = this_host().spawn_procs(per_host={"gpus": count})
            pending = procs.spawn("echo", Echo).say.call(1)
            procs.stop().get()
            outcome = pending.exception()
            # who was up in time may have answered
            assert outcome is None or isinstance(outcome, SupervisionError)
    assert survivor.say.call_one("here").get() == "here"
