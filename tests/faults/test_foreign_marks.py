"""Links that another user has put into the folder of a job, from the time when he could write it:
marks lead to no file of ours, and nothing of ours is shown as the output of a worker.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from helpers.each import for_each
from helpers.strangers import needs_another_user, plant
from monarch import _ours
from monarch.job import worker_main
from monarch.job.base.launch import WorkerProcess
from monarch.job.base.worker_spec import KILLED, WorkerSpec
from monarch.job.slurm import parts as slurm_parts
from monarch.job.slurm.allocation import run_here
from monarch.job.slurm.parts import SlurmPart
from monarch.job.slurm.watch import WarningWatch
from monarch.logs.line import LogLine
from monarch.logs.reader import MergedLines
from monarch.telemetry import profile

pytestmark = needs_another_user

MINE = LogLine(1.0, "stdout", 0, "a secret", "h", "m", 0, "g=0").to_json() + "\n"


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that every user may write, in which this program works."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # that of the test is closed to others
    (folder / "here").mkdir()
    for each in (folder, folder / "here"):
        each.chmod(0o777)
    monkeypatch.chdir(folder / "here")
    yield folder
    _ours.remove_tree(folder)


@pytest.fixture
def secret(shared: Path) -> Path:
    keys = shared / "keys"
    keys.mkdir(mode=0o700)
    (keys / "key").write_text(MINE)
    return keys / "key"


def planted(name: str, target: Path, folder: str = ".monarch/job") -> Path:
    """A folder of ours, with a link in it."""
    place = Path(folder).absolute()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.chmod(0o777)
    plant((place / name, str(target)))
    place.chmod(0o700)
    return place


def drop(folder: Path) -> None:
    """A worker that nobody owns ends, with its folder."""
    with patch("os._exit"):
        worker_main._drop(WorkerSpec("m", "0", "ipc://x", farewell=str(folder / "mark")))


def warn(folder: Path) -> None:
    with patch("os._exit"):
        worker_main._warn(folder / "mark")


MARKS: dict[str, Callable[[Path], object]] = {
    "a job that is cancelled": lambda folder: SlurmPart("1", folder, ()).expect_end(),
    "a worker that is warned": warn,
    "the end of a worker": lambda folder: _ours.touch(folder / "mark"),
    "output of an allocation": lambda folder: run_here("true", folder, "tag"),
}
NAMES = {"a job that is cancelled": KILLED, "output of an allocation": "srun.log"}


@for_each("what", MARKS)
def test_a_mark_is_made_through_no_link(shared: Path, what: str) -> None:
    target = shared / f"made by {what}"
    folder = planted(NAMES.get(what, "mark"), target, f".monarch/{len(what)}")
    with suppress(_ours.NotOurs):
        MARKS[what](folder)
    assert not target.exists()


def test_a_worker_without_an_owner_removes_no_folder_of_others(secret: Path) -> None:
    plant((Path(".monarch", "job").absolute(), str(secret.parent)))
    drop(Path(".monarch", "job").absolute())
    assert secret.read_text() == MINE


def last_words(folder: Path) -> str:
    return slurm_parts.last_words(folder / "srun.log", f"{folder}/job_")


def lines(folder: Path) -> list[str]:
    with closing(MergedLines(folder.parent)) as found:
        return [line.text for line in found.read()]


OUTPUT: dict[str, tuple[str, Callable[[Path], object]]] = {
    "of Slurm": ("job_1.out", last_words),
    "of an allocation": ("srun.log", last_words),
    "of a worker": (
        "m_0.log",
        lambda folder: WorkerProcess("m[0]", "ipc://x", 1, folder / "m_0.log").tail(),
    ),
    "of a rank": ("m_0.jsonl", lines),
    "of a rank, in parts": ("m_0.jsonl.1", lines),
}


@for_each("whose", OUTPUT)
def test_output_is_not_read_through_a_link(secret: Path, whose: str) -> None:
    name, read = OUTPUT[whose]
    folder = planted(name, secret, f".monarch/{len(whose)}/job")
    if name.endswith(".1"):
        (folder / name.removesuffix(".1")).touch()
    assert "a secret" not in str(read(folder))
    os.unlink(folder / name)
    (folder / name).write_text(MINE)
    assert "a secret" in str(read(folder))


def test_a_folder_of_ranks_that_is_a_link_is_not_read(secret: Path) -> None:
    (secret.parent / "m_0.jsonl").write_text(MINE)
    folder = planted("host", secret.parent)
    assert lines(folder / "any") == []


def test_a_warning_of_another_users_is_none(shared: Path) -> None:
    folder = Path(".monarch", "job").absolute()
    folder.mkdir(mode=0o700, parents=True)
    watch = WarningWatch("1", folder, None)
    watch.stop()
    folder.rename("moved")
    Path("moved", "warned.0").touch()
    folder.parent.chmod(0o777)
    plant((folder, str(Path("moved").absolute())))
    folder.parent.chmod(0o700)
    with pytest.raises(_ours.NotOurs):
        watch._warnings()


def test_a_profile_whose_name_was_guessed_overwrites_nothing(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "monarch-20300101-000000.pftrace"
    monkeypatch.setattr(time, "strftime", lambda pattern: name)
    plant((Path(name).absolute(), str(secret)))
    made: Any = object.__new__(profile.Profile)
    made._end, made.timeline = 1, SimpleNamespace(content=b"a profile")
    written = made.export_perfetto_trace()
    assert secret.read_text() == MINE
    assert written.read_bytes() == b"a profile" and not written.is_symlink()
