"""Random operations and faults on trees of actors; `tests/chaos` says how, and how to do it for an
hour.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from helpers.effort import shortened
from helpers.scripts import TAG, processes_tagged
from helpers.waiting import wait_until

pytestmark = pytest.mark.timeout(240)


def run_chaos(folder: Path, *arguments: str) -> None:
    tag = uuid.uuid4().hex
    command = [sys.executable, "-m", "chaos", "--folder", str(folder), *arguments]
    done = subprocess.run(
        command, env={**os.environ, TAG: tag}, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    wait_until(lambda: not processes_tagged(tag), what="the end of all its processes")


def test_random_faults_in_a_tree_have_exactly_their_consequences(
    tmp_path: Path,
) -> None:
    run_chaos(tmp_path, "--minutes", shortened("0.5", "0.15"))


def test_trees_that_several_client_threads_use_do_not_disturb_each_other(tmp_path: Path) -> None:
    run_chaos(
        tmp_path, "--minutes", shortened("0.3", "0.1"), "--threads", "3", "--operations", "80"
    )


def test_what_chaos_does_follows_from_its_seed_alone(tmp_path: Path) -> None:
    logs = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        run_chaos(folder, "--seed", "5", "--rounds", "2", "--operations", "30")
        logs.append([(folder / f"r{number}t0.log").read_text() for number in range(2)])
    assert logs[0] == logs[1]
