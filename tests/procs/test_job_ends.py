"""Jobs that end with the program: it has let go of their hosts by then, so its status is its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.jobs import Home
    from helpers.slurm import Slurm

USE = """
    import os, sys
    from monarch.actor import Actor, endpoint
    from monarch.job import SlurmJob

    class Worker(Actor):
        @endpoint
        def node(self) -> str:
            return os.environ["SLURMD_NODENAME"]

    if __name__ == "__main__":
        job = SlurmJob({"hosts": 2}, allocation=ALLOCATION, exclusive=False)
        procs = job.state(cached_path=None).hosts.spawn_procs({"n": 2})
        worker = procs.spawn("worker", Worker)
        print(sorted(set(worker.node.call().get().values())), flush=True)
        HOW
"""
ENDS = {"pass": 0, "sys.exit(3)": 3, "os.fork() or sys.exit(); os.wait()": 0}


@pytest.mark.parametrize("how", ENDS)
def test_a_program_in_an_allocation_ends_with_its_own_status(
    how: str, home: Home, slurm: Slurm
) -> None:
    program = home.program(USE.replace("ALLOCATION", "'current'").replace("HOW", how))
    ended = subprocess.run(
        ["salloc", "-N2", sys.executable, program],
        cwd=home.folder,
        env=home.environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (ENDS[how], "['n0', 'n1']\n"), ended.stderr
    assert "monarch" not in ended.stderr
    home.wait_nothing_left()


def test_a_batch_script_whose_program_ends_well_is_completed(home: Home, slurm: Slurm) -> None:
    program = home.program(USE.replace("ALLOCATION", "'current'").replace("HOW", "pass"))
    subprocess.run(
        [
            "sbatch", "--wait", "--array=0-1", "--nodes=2", "--output=%a.log",
            f"--wrap={sys.executable} {program}",
        ],
        cwd=home.folder,
        env=home.environment({}),
        check=True,  # it has the status of the job
        capture_output=True,
    )  # fmt: skip
    logs = [(home.folder / f"{index}.log").read_text() for index in range(2)]
    assert all(log.startswith("['n") and "monarch error" not in log for log in logs), logs
    home.wait_nothing_left()


def test_a_submitted_job_that_ends_with_its_program_is_no_fault_of_it(
    home: Home, slurm: Slurm
) -> None:
    said = home.run(USE.replace("ALLOCATION", "None").replace("HOW", "pass"))
    assert "monarch error" not in said
    assert slurm.ask("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%j") == ""
    home.wait_nothing_left()
