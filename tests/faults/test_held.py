"""The tool that makes processes late, `python -m tests.held`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from held.command import main
from helpers.freezer import FREEZER, OURS, freezer_group, frozen, why_not
from helpers.leaks import descendants
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
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process.pid
    process.kill()
    process.wait()


def test_all_that_descends_from_a_process_is_below_it(sleeper: int) -> None:
    assert sleeper in descendants(os.getpid()) and sleeper in descendants(os.getppid())
    assert os.getpid() not in descendants(os.getpid())
    assert descendants(sleeper) == {}


def test_what_is_held_stands_still_and_goes_on(sleeper: int) -> None:
    with freezer_group() as group, frozen([str(sleeper)], group):
        wait_until(lambda: stat_of(sleeper)[STATE] == "D", what="it is held")
    wait_until(lambda: stat_of(sleeper)[STATE] == "S", what="it goes on")


def test_a_command_is_held_and_its_status_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "5", sys.executable, "-c", PROGRAM]) == 7
    assert capfd.readouterr().err == "seed 5\n"
    assert [*FREEZER.glob(f"{OURS}*")] == []


def test_without_a_command_it_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "what command?" in capfd.readouterr().err
