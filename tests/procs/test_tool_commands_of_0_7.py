"""`monarch.tools.commands`, as programs of 0.7 call them: contexts, and commands on the job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = pytest.mark.processes("workers of jobs are programs")

PROGRAM = """
    import os, sys
    sys.path.insert(0, os.getcwd())
    from monarch.tools import commands

    commands.context_create("a")
    commands.context_create("b")
    commands.context_use("a")
    commands.context_ls()
    commands.context_rm("b")
    commands.apply_job("jobs_here.training")
    print(commands.load_current_job())
    sys.stdout.flush()
    print(commands.exec_on_job(["sh", "-c", "echo $GREETING; exit 3"], env=["GREETING=hi"]))
    print(commands.exec_on_job(["sh", "-c", "true"], run_all=True, per_host={"gpus": 2}, kill=True))
"""


def test_contexts_and_commands_on_the_job_are_functions(home: Home) -> None:
    (home.folder / "jobs_here.py").write_text(
        'from monarch.job import ProcessJob\ntraining = ProcessJob({"hosts": 2})\n'
    )
    assert home.run(PROGRAM).splitlines() == [
        "Created context 'a'",
        "Created context 'b'",
        "Switched to context 'a'",
        "* a",
        "  b",
        "Removed context 'b'",
        "ProcessJob({'hosts': 2})",
        "hi",
        "3",
        "0",
        "running: ProcessJob({'hosts': 2})",
    ]
    home.wait_nothing_left()
