"""What operators are told when something is not as it should be: by its text."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from helpers.strangers import given_to_stranger, needs_another_user
from monarch._core.wire.link_records import Hello, why_apart
from monarch.errors import JobError
from monarch.job import LocalJob, ProcessJob, current
from monarch.job.base.cache import CacheFile, needs_room
from monarch.job.overview import HostRow, Overview
from monarch.job.ssh import text as ssh_text


def test_a_full_disk_at_the_start_of_a_job_is_an_error_of_the_job() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", ".monarch/job_state.pkl")
    with pytest.raises(JobError, match=r"LocalJob.* can't be started, as a disk is full: .*\.pkl"):
        with needs_room(LocalJob(hosts=["workers"])):
            raise full
    with pytest.raises(PermissionError):
        with needs_room("job"):
            raise PermissionError(errno.EACCES, "Permission denied")


def test_versions_that_differ_name_the_client_where_it_has_no_address() -> None:
    ours, theirs = Hello("8g2ka7x", "", "", "0.1.0"), Hello("1", "tcp://h1:1", "", "0.2.0")
    told = "tcp://h1:1 runs pymonarch 0.2.0, and the host of the client pymonarch 0.1.0: upgrade"
    assert why_apart("the host of the client", ours, theirs).startswith(told)
    told = "the host of the client runs pymonarch 0.1.0, and tcp://h1:1 pymonarch 0.2.0"
    assert why_apart("tcp://h1:1", theirs, ours).startswith(told)


JOBS = """from monarch.job import ProcessJob
job = ProcessJob({"nodes": 1})
"""


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["serve", "--job", "jobs_at_night.job", "nonsense"], "torchrun ..., or python ..., got"),
        (["serve", "--job", "jobs_at_night.job", "torchrun", "--nnodes", "x", "a.py"], "nnodes"),
        (["serve", "--job", "jobs_at_night.job", "torchrun", "none.py"], "no script 'none.py'"),
        (
            ["serve", "--job", "jobs_at_night.job", "--mesh", "x", "torchrun", "jobs_at_night.py"],
            "the job has no mesh 'x'; it has nodes",
        ),
        (["serve", "--job", "jobs_at_night.job"], "has no command of its own"),
        (["serve", "--job", "jobs_at_night.other", "torchrun", "a.py"], "no job called 'other'"),
        (["apply", "jobs_at_night.other"], "no job called 'other'"),
        (["apply", "jobs_at_night"], "such as jobs.training"),
    ],
)
def test_a_command_that_is_refused_leaves_the_context_its_job(
    command: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    testing = pytest.importorskip("typer.testing")
    from monarch.tools.cli import commands  # where there is typer

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "jobs_at_night.py").write_text(JOBS)
    result = testing.CliRunner().invoke(commands(command[0]), command)
    assert told in f"{result.exception} {result.output}" and result.exit_code != 0
    assert current.spec_of(current.active_context()) == ""


@pytest.mark.parametrize(
    "command",
    [
        ["exec", "--mesh", "x", "ls"],
        ["shell", "--mesh", "x"],
        ["run", "--job", "jobs_at_night.job", "--mesh", "x", "jobs_at_night.py"],
    ],
)
def test_a_mesh_that_there_is_not_is_refused_before_a_job_starts(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    testing = pytest.importorskip("typer.testing")
    from monarch.tools.cli import commands  # where there is typer

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "jobs_at_night.py").write_text(JOBS)
    current.set_current_job("jobs_at_night.job")
    monkeypatch.setattr(ProcessJob, "_create", unwanted)
    result = testing.CliRunner().invoke(commands(command[0]), command)
    assert str(result.exception) == "the job has no mesh 'x'; it has nodes", result.output
    assert not current.state_path(None).exists()


@pytest.mark.parametrize(
    "command", [["why"], ["dashboard"], ["tui", "--diagnose"], ["stacks"], ["debug", "list"]]
)
def test_where_no_program_runs_a_command_says_what_the_job_waits_for(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    testing = pytest.importorskip("typer.testing")
    from monarch.tools.cli import commands  # where there is typer

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("monarch.tools.found.find", list)
    waits = True, "Queue job 9: PENDING (Resources)"
    monkeypatch.setattr(ProcessJob, "_progress", lambda _: waits)
    job = ProcessJob({"nodes": 1})
    job._status, job._apply_id = "running", "9"
    CacheFile(current.state_path(None)).write(job._pickled())
    result = testing.CliRunner().invoke(commands(command[0]), command)
    assert str(result.exception) == (
        "no Monarch program of yours runs on this machine; ProcessJob({'nodes': 1}) waits for its"
        " hosts: Queue job 9: PENDING (Resources)"
    ), result.output


def unwanted(*_: object) -> None:
    raise AssertionError("the job starts")


def test_status_shows_all_lines_of_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("typer")
    from monarch.tools.status import _show  # where there is typer

    row = HostRow("trainers", 0, "tcp://h:1", "", {}, "it has ended\nby SIGKILL")
    _show("default", Overview("ProcessJob", "9", True, [row], "one of two\nhas ended"))
    shown = capsys.readouterr().out
    assert "one of two\nhas ended" in shown and "by SIGKILL" in shown


def test_a_folder_of_another_user_is_named_as_such(tmp_path: Path) -> None:
    there = Path(ssh_text.of_user(str(tmp_path / "folder"), os.geteuid()))
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    there.symlink_to(own)  # whichever folder another user has it lead to
    assert keep(there) == (1, f"{ssh_text.OTHERS} {there}\n", "")
    there.unlink()
    there.mkdir(mode=0o777)
    there.chmod(0o777)
    assert keep(there) == (1, f"{ssh_text.OTHERS} {there}\n", "")
    there.chmod(0o700)
    assert keep(there) == (0, "", f"\n{ssh_text.HERE} {os.geteuid()}\n")
    assert there.exists()
    there.rmdir()
    assert keep(there) == (0, "", f"\n{ssh_text.ELSEWHERE} {os.geteuid()}\n")
    assert not there.exists()


@needs_another_user
def test_a_folder_that_another_user_has_made_first_keeps_a_job_out(tmp_path: Path) -> None:
    there = Path(ssh_text.of_user(str(tmp_path / "folder"), os.geteuid()))
    there.mkdir(mode=0o700)
    given_to_stranger(there)
    assert keep(there) == (1, f"{ssh_text.OTHERS} {there}\n", "")


def keep(there: Path) -> tuple[int, str, str]:
    """What `keeper` says whose stdin is closed at once: status, stderr, stdout."""
    keeper = ssh_text.keeper(str(there.with_suffix("")))
    done = subprocess.run(
        ["sh", "-c", keeper], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    return done.returncode, done.stderr, done.stdout
