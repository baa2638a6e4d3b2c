"""What other users have made, or may change, is not used: hosts files, saved jobs, contexts,
folders for output.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from helpers.strangers import STRANGER, given_to_stranger
from monarch.job import JobError, LocalJob, ProcessJob, current, hosts_from_config, job_load
from monarch.job.base import cache

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MONARCH_HOSTS", raising=False)
    here = tmp_path / "above" / "here"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    return here


def by_stranger(path: Path, content: str) -> Path:
    path.write_text(content)
    return given_to_stranger(path)


# monarch.toml

HOSTS = "[hosts.others]\nprocesses = 1\n"


def is_read() -> bool:
    try:
        hosts_from_config("trainers")
    except KeyError:  # it has no such table
        return True
    except JobError:
        return False
    raise AssertionError("no file was found")


@as_root
@pytest.mark.parametrize("where", ["above", "here"])
def test_a_hosts_file_of_another_user_is_not_read_unless_it_is_named(
    where: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = by_stranger((folder if where == "here" else folder.parent) / "monarch.toml", HOSTS)
    with pytest.raises(
        JobError, match=rf"{file} belongs to user {STRANGER} .*MONARCH_HOSTS={file}"
    ):
        hosts_from_config("others")
    monkeypatch.setenv("MONARCH_HOSTS", str(file))
    assert is_read()


@as_root
def test_a_hosts_file_in_a_folder_of_another_user_is_not_read(folder: Path) -> None:
    (folder / "monarch.toml").write_text(HOSTS)
    assert is_read()
    given_to_stranger(folder.parent)
    with pytest.raises(JobError, match=f"{folder.parent} belongs to user {STRANGER}"):
        hosts_from_config("others")


@as_root
def test_a_hosts_file_is_not_read_through_the_link_of_another_user(folder: Path) -> None:
    (folder / "mine.toml").write_text(HOSTS)
    (folder / "monarch.toml").symlink_to("mine.toml")
    assert is_read()
    given_to_stranger(folder / "monarch.toml")
    with pytest.raises(JobError, match=f"is a link that user {STRANGER} .*made"):
        hosts_from_config("others")


@pytest.mark.parametrize(
    ("level", "mode", "read"),
    [(".", 0o777, False), ("..", 0o757, False), ("..", 0o1777, True), (".", 0o755, True)],
)
def test_a_hosts_file_that_others_could_put_there_is_not_read(
    level: str, mode: int, read: bool, folder: Path
) -> None:
    (folder / "monarch.toml").write_text(HOSTS)
    (folder / level).chmod(mode)
    assert is_read() == read


@pytest.mark.parametrize(("members", "read"), [([], True), (["mallory"], False)])
def test_a_group_counts_as_others_unless_it_is_the_users_own(
    members: list[str], read: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = SimpleNamespace(pw_name="alice", pw_gid=os.getgid())
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: me)
    monkeypatch.setattr(
        grp,
        "getgrgid",
        lambda gid: SimpleNamespace(
            gr_gid=os.getgid(), gr_name="alice", gr_mem=["alice", *members]
        ),
    )
    file = folder / "monarch.toml"
    file.write_text(HOSTS)
    os.chown(file, -1, os.getgid())
    file.chmod(0o664)
    assert is_read() == read


# .monarch

USES: dict[str, Callable[[], object]] = {
    "load the current job": current.load_current_job,
    "set the current job": lambda: current.set_current_job("trusted_jobs.mine"),
    "list contexts": current.contexts,
    "the active context": current.active_context,
    "load a saved job": lambda: job_load(".monarch/job_state.pkl"),
    "start a job": lambda: ProcessJob({"hosts": 1}).state(),
    "start a script": lambda: LocalJob().apply(client_script="script.py"),
}


@as_root
@pytest.mark.parametrize("made", ["the folder", "a link in its place"])
@pytest.mark.parametrize("use", USES)
def test_a_folder_for_jobs_that_another_user_has_made_is_not_used(
    use: str, made: str, folder: Path
) -> None:
    (folder / "trusted_jobs.py").write_text("from monarch.job import LocalJob\nmine = LocalJob()\n")
    (folder / "script.py").touch()
    place = folder / ("theirs" if made != "the folder" else ".monarch")
    place.mkdir(mode=0o700)
    (place / "default").mkdir()
    by_stranger(place / "default" / "spec", "trusted_jobs.mine\n")
    by_stranger(place / "default" / "state.pkl", "never read")
    if made == "the folder":
        given_to_stranger(place)
    else:
        (folder / ".monarch").symlink_to("theirs")
        given_to_stranger(folder / ".monarch")
    with pytest.raises(JobError, match=str(STRANGER)):
        USES[use]()


@as_root
def test_the_job_that_another_user_has_set_is_not_imported(folder: Path) -> None:
    (folder / "theirs.py").write_text("raise SystemExit('it was run')")
    (folder / ".monarch" / "default").mkdir(parents=True, mode=0o700)
    by_stranger(folder / ".monarch" / "default" / "spec", "theirs.job\n")
    with pytest.raises(JobError, match=f"spec belongs to user {STRANGER}"):
        current.load_current_job()


@as_root
def test_no_output_goes_through_links_of_others(folder: Path) -> None:
    (folder / "script.py").touch()
    (folder / ".monarch").mkdir(mode=0o700)
    (folder / "elsewhere").mkdir()
    (folder / ".monarch" / "logs").symlink_to(folder / "elsewhere")
    given_to_stranger(folder / ".monarch" / "logs")
    for start in (
        lambda: LocalJob().apply(client_script="script.py"),
        lambda: ProcessJob({"hosts": 1}).state(),
    ):
        with pytest.raises(JobError, match=f"is a link that user {STRANGER}"):
            start()
    assert list((folder / "elsewhere").iterdir()) == []


def test_the_output_of_a_script_is_its_users_alone(folder: Path) -> None:
    (folder / "script.py").touch()
    umask = os.umask(0)
    try:
        job = LocalJob()
        job.apply(client_script="script.py")
        job.process.wait(timeout=30)
    finally:
        os.umask(umask)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (folder / ".monarch").rglob("*")
    }
    assert {name: modes[name] for name in ("logs", "stdout.log", "stderr.log")} == {
        "logs": 0o700, "stdout.log": 0o600, "stderr.log": 0o600,
    }  # fmt: skip
    assert stat.S_IMODE((folder / ".monarch").stat().st_mode) == 0o700


def test_the_wait_for_a_lock_ends_and_says_who_holds_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_LOCK_PATIENCE", 0.2)
    place = cache.CacheFile("job.pkl")
    with place.locked():
        errors: list[BaseException] = []

        def wait() -> None:
            try:
                with place.locked():
                    pass
            except JobError as error:
                errors.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        waiting.join(timeout=30)
        assert [f"process {os.getpid()} (" in str(error) for error in errors] == [True]
    with place.locked():
        pass


@as_root
def test_a_lock_that_another_user_has_made_is_no_lock(folder: Path) -> None:
    lock = by_stranger(folder / "job.pkl.lock", "")
    with lock.open() as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX)
        with pytest.raises(JobError, match=f"user {STRANGER}"), cache.CacheFile("job.pkl").locked():
            pass
