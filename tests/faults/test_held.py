"""The tool that makes processes late, `python -m tests.held`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from held import FREEZER, below, hold, main
from helpers.waiting import wait_until
from monarch._proc_stat import STATE, stat_of

PROGRAM = """
import sys, time
last = began = time.monotonic()
while last - began < 20:
    time.sleep(0.001)
    last, before = time.monotonic(), last
    if last - before > 0.1:
        sys.exit(7)
"""


@pytest.fixture(autouse=True)
def _freezer() -> None:
    if not os.access(FREEZER / "tasks", os.W_OK):
        pytest.skip(f"needs the freezer of control groups, version 1, in {FREEZER}, and root")


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.fixture
def group() -> Iterator[Path]:
    folder = FREEZER / f"monarch-test-held-{os.getpid()}"
    folder.mkdir()
    yield folder
    folder.rmdir()


def test_all_that_descends_from_a_process_is_below_it(sleeper: int) -> None:
    assert sleeper in below(os.getpid()) and sleeper in below(os.getppid())
    assert os.getpid() not in below(os.getpid())
    assert below(sleeper) == []


def test_what_is_held_stands_still_and_goes_on(sleeper: int, group: Path) -> None:
    holds = threading.Thread(target=hold, args=([str(sleeper)], group, 1.0))
    holds.start()
    wait_until(lambda: stat_of(sleeper)[STATE] == "D", what="it is held")
    holds.join()
    wait_until(lambda: stat_of(sleeper)[STATE] == "S", what="it goes on")


def test_a_command_is_held_and_its_status_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", sys.executable, "-c", PROGRAM]) == 7
    assert capfd.readouterr().err == "seed 5\n"
    assert [*FREEZER.glob(f"monarch-held-{os.getpid()}-*")] == []


def test_without_a_command_it_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "what command?" in capfd.readouterr().err
