"""After a fault that nobody handled, exit functions run and files are written, as at the end of any
program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from helpers.ahead import several_at_a_time
from helpers.scripts import run_script

if TYPE_CHECKING:
    from pathlib import Path

FAILS = """
from monarch.actor import Actor, endpoint, this_host

class Fails(Actor):
    @endpoint
    def alive(self):
        pass

    @endpoint
    def fail(self):
        raise ValueError("nobody handles this")

def fail():
    fails = this_host().spawn_procs().spawn("fails", Fails)
    fails.alive.call_one().get()
    fails.fail.broadcast()
"""


@pytest.mark.parametrize("end", ["pass", "threading.Event().wait()", "wait_and_go_on()"])
def test_exit_functions_run_and_files_are_written_after_an_unhandled_fault(
    end: str, tmp_path: Path
) -> None:
    result = run_script(f"""
import atexit
import threading
registered = open({str(tmp_path / "registered")!r}, "w")
atexit.register(registered.write, "an exit function has run\\n")
left_open = open({str(tmp_path / "left_open")!r}, "w")
left_open.write("left open\\n")
{FAILS}

def wait_and_go_on():
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass

fail()
{end}
print("to the end", end="")
""")
    assert result.exit_code == 1, str(result)
    assert "nobody handles this" in result.stderr, str(result)
    assert (tmp_path / "registered").read_text() == "an exit function has run\n", str(result)
    assert (tmp_path / "left_open").read_text() == "left open\n", str(result)
    assert result.left_behind == [], str(result)
    assert ("to the end" in result.stdout) == (end != "threading.Event().wait()"), str(result)


STUCK = """
def stuck():
    while True:
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass

"""


def test_exit_functions_run_and_files_are_written_where_the_main_thread_is_stuck(
    tmp_path: Path,
) -> None:
    result = run_script(
        f"""
import atexit
import threading
{FAILS}
{STUCK}
registered = open({str(tmp_path / "registered")!r}, "w")
atexit.register(registered.write, "an exit function has run\\n")
atexit.register(lambda: 1 / 0)
fail()
stuck()
""",
        env={"MONARCH_FAULT_GRACE": "0.5s"},
    )
    assert result.exit_code == 1, str(result)
    assert "nobody handles this" in result.stderr and "ZeroDivisionError" in result.stderr, str(
        result
    )
    assert (tmp_path / "registered").read_text() == "an exit function has run\n", str(result)
    assert result.left_behind == [], str(result)


@several_at_a_time
def test_an_exit_function_that_never_returns_does_not_keep_a_stuck_program() -> None:
    result = run_script(
        f"""
import atexit
import threading
{FAILS}
{STUCK}
atexit.register(stuck)
fail()
stuck()
""",
        env={"MONARCH_FAULT_GRACE": "0.5s"},
    )
    assert result.exit_code == 1, str(result)
    assert "nobody handles this" in result.stderr, str(result)
    assert result.left_behind == [], str(result)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("end", ["pass", "threading.Event().wait()"])
def test_a_child_of_multiprocessing_ends_in_order_with_the_status_of_the_fault(
    method: str, end: str, tmp_path: Path
) -> None:
    result = run_script(f"""
import multiprocessing
from multiprocessing.util import Finalize
import threading
{FAILS}

def child():
    file = open({str(tmp_path / "file")!r}, "w")
    file.write("written\\n")
    Finalize(None, print, ["an exit function has run"], exitpriority=-100)
    fail()
    {end}

if __name__ == "__main__":
    process = multiprocessing.get_context({method!r}).Process(target=child)
    process.start()
    process.join()
    print(process.exitcode)
""")
    assert result.stdout == "an exit function has run\n1\n", str(result)
    assert "KeyboardInterrupt" not in result.stderr, str(result)
    assert "nobody handles this" in result.stderr, str(result)
    assert (tmp_path / "file").read_text() == "written\n"
    assert result.left_behind == [], str(result)
