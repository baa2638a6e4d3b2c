"""Nothing that a workload started outlives it."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks import processes

# Starts a process that leaves its parent's session and sleeps, and ends.
DESERTER = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
"""


def test_processes_are_found_and_killed_after_they_left_parent_and_session() -> None:
    mark = processes.new_mark()
    subprocess.run(
        [sys.executable, "-c", DESERTER],
        env={**os.environ, processes.MARK: mark},
        check=True,
        timeout=60,
    )
    left = processes.wait_until_gone(mark, limit_s=0)
    assert len(left) == 1
    processes.kill(mark)
    assert processes.marked(mark) == set()


def test_processes_that_end_by_themselves_are_waited_for() -> None:
    mark = processes.new_mark()
    with subprocess.Popen([sys.executable, "-c", ""], env={**os.environ, processes.MARK: mark}):
        assert processes.wait_until_gone(mark, limit_s=30) == set()


def test_a_mark_finds_nothing_that_is_not_marked() -> None:
    assert processes.marked(processes.new_mark()) == set()
