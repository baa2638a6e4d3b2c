"""The marks that the batch script of a Slurm job leaves in the folder of the job."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from helpers.strangers import given_to_stranger, needs_another_user
from monarch.job.slurm.script import NodeGroup, Resources, Script

SRUN = "#!/bin/sh\nexit 3\n"


def run(folder: Path, how: str) -> int:
    """Run the script of a job in which each worker ends with status 3; `how` comes first."""
    script = Script(
        groups=[NodeGroup({"a": 1}, Resources())], options=[], first_options=[],
        folder=str(folder), logs="/dev/null", setup=[how], python="python", port=0, bind="",
        srun_args=[], idle_limit=60.0, allocation="", step_name="monarch-1", client="", batch={},
    )  # fmt: skip
    tools = folder.parent / "tools"
    tools.mkdir()
    (tools / "srun").write_text(SRUN)
    (tools / "srun").chmod(0o700)
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_RESTART_COUNT": "1"}
    ended = subprocess.run(["bash"], input=script.render(), text=True, env=env, check=False)
    return ended.returncode


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "a job"
    made.mkdir(mode=0o700)
    return made


def test_a_script_leaves_its_status_in_the_folder_of_its_job(folder: Path) -> None:
    assert run(folder, "") == 3
    assert (folder / "ended.1").read_text() == "3\n"


WARNED = "trap 'warned; trap - EXIT' EXIT"


def test_a_script_follows_no_link_that_was_put_into_its_folder(folder: Path) -> None:
    thesis = folder.parent / "thesis"
    thesis.write_text("all of it")
    (folder / "ended.1").symlink_to(thesis)
    (folder / "warned.1").symlink_to(folder.parent / "new")
    assert run(folder, WARNED) == 3
    assert thesis.read_text() == "all of it"
    assert not (folder.parent / "new").exists()


def test_a_script_makes_nothing_in_a_folder_to_which_a_link_leads(folder: Path) -> None:
    home = folder.parent / "home"
    home.mkdir()
    folder.rmdir()
    folder.symlink_to(home)
    assert run(folder, WARNED) == 3
    assert not list(home.iterdir())


@needs_another_user
def test_a_script_makes_nothing_in_a_folder_of_another_user(folder: Path) -> None:
    given_to_stranger(folder).chmod(0o777)
    assert run(folder, WARNED) == 3
    assert not list(folder.iterdir())


def test_a_script_that_is_warned_leaves_a_mark(folder: Path) -> None:
    assert run(folder, WARNED) == 3
    assert sorted(path.name for path in folder.iterdir()) == ["ended.1", "warned.1"]
