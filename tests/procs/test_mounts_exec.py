"""The quick start of 0.7's help: a job with a mount is applied, and commands on it see the mount."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from helpers.fuse import mounted_below
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = [pytest.mark.processes("mounts are the kernel's"), pytest.mark.slow]

JOB = """
import os
from monarch.job import ProcessJob

folder = os.path.dirname(__file__)
training = ProcessJob({"hosts": 2})
training.remote_mount(folder + "/src", folder + "/there/$SUBDIR", python_exe="bin/python")
"""


def test_a_command_sees_what_the_job_mounts_and_runs_with_its_interpreter(home: Home) -> None:
    source = home.folder / "src"
    (source / "bin").mkdir(parents=True)
    interpreter = source / "bin" / "python"
    interpreter.write_text(f'#!/bin/sh\nINTERPRETER="$0" exec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    (source / "train.py").write_text("import os\nprint('by', os.environ['INTERPRETER'])\n")
    (home.folder / "jobs_here.py").write_text(JOB)
    home.monarch("apply", "jobs_here.training")
    there = home.folder / "there" / "hosts"
    said = home.monarch("exec", "--all", "python", f"{there}/train.py")
    assert (
        sorted(line.split("] ")[-1] for line in said.splitlines() if "by " in line)
        == [f"by {there}/bin/python"] * 2
    )
    wait_until(lambda: not mounted_below(home.folder), what="the end of the mount")
    home.monarch("exec", "--kill", "--", "true")
    home.wait_nothing_left()
