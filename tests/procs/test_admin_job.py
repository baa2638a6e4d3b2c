"""The job that the admin interface names for a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.admin import admin_of
from helpers.terminals import running
from helpers.waiting import wait_until

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

pytestmark = pytest.mark.processes("a program, and the helper that serves it")

PROGRAM = """
    import sys
    from monarch.job import LocalJob

    if __name__ == "__main__":
        job = LocalJob(["trainers"])
        job.state().trainers.spawn_procs(name="ranks").initialized.get()
        print("uses it", flush=True)
        sys.stdin.readline()
        job.kill()
        print("has ended it", flush=True)
        sys.stdin.read()
    """


@pytest.mark.timeout(120)
def test_a_program_is_told_with_its_job_and_that_of_slurm(tmp_path: Path) -> None:
    allocation = {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "night run"}
    with running(PROGRAM, tmp_path, allocation) as program:
        program.wait_for("uses it")
        with admin_of(program.pid) as (_, asker):
            told = asker.get("/v1/access")["program"]
            assert told["job"] == "LocalJob(('trainers',)), Slurm job 4711 night run"
            assert told["pid"] == program.pid
            assert program.process.stdin is not None
            program.process.stdin.write("\n")
            program.process.stdin.flush()
            program.wait_for("has ended it")
            after = "Slurm job 4711 night run"
            wait_until(lambda: asker.get("/v1/access")["program"]["job"] == after, what="no job")
