"""The file through which a program finds a running job: what is reused, what is replaced, what is
never touched.

`Pretend` is a kind of job whose workers are entries of a dict, as another package could write it.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from monarch.job import JobError, JobState, JobTrait, LocalJob, job_load, job_loads
from monarch.logs.keep import stop_keeping

RUNNING: dict[str, str] = {}
"""What runs: `apply_id` to the description of a job."""

ENDED: list[str] = []
KEPT: list[str] = []


class Pretend(JobTrait):
    def __init__(self, what: str, fails: bool = False) -> None:
        self.what = what
        self.fails = fails

    def _create(self, client_script: str | None) -> None:
        assert self.apply_id is not None
        RUNNING[self.apply_id] = self.what
        if self.fails:
            raise ValueError("no machines")

    def _state(self) -> JobState:
        return JobState({})

    def can_run(self, spec: JobTrait) -> bool:
        return self._is_running() and self._same_spec(spec)

    def _is_running(self) -> bool:
        return self.apply_id in RUNNING

    def _same_spec(self, spec: JobTrait) -> bool:
        return isinstance(spec, Pretend) and spec.what == self.what

    def _kept(self) -> None:
        assert self.apply_id is not None
        KEPT.append(self.apply_id)

    def _kill(self) -> None:
        assert self.apply_id is not None
        RUNNING.pop(self.apply_id, None)
        ENDED.append(self.apply_id)


class Broken(Pretend):
    """Runs, but serves nobody."""

    def can_run(self, spec: JobTrait) -> bool:
        return False


@pytest.fixture(autouse=True)
def _nothing_runs() -> Iterator[None]:
    for registry in (RUNNING, ENDED, KEPT):
        registry.clear()
    yield
    for job in RUNNING:  # or what later tests print would go to its files
        stop_keeping(job)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "job_state.pkl"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_state_is_of_the_class_that_is_exported(path: Path) -> None:
    assert type(Pretend("a").state(path)) is JobState


def test_a_program_that_describes_the_same_job_finds_it(path: Path) -> None:
    first, second = Pretend("a"), Pretend("a")
    first.state(path)
    second.state(path)
    assert len(RUNNING) == 1
    assert second.apply_id == first.apply_id is not None
    assert second.active


def test_the_file_is_this_users_alone_and_beside_it_is_the_folder_of_its_logs(path: Path) -> None:
    umask = os.umask(0)
    try:
        job = Pretend("a")
        job.state(path)
    finally:
        os.umask(umask)
    assert mode(path) == 0o600
    assert mode(path.parent) == mode(path.parent / "logs") == 0o700
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "job_state.pkl",
        "job_state.pkl.lock",
        "logs",
    ]
    label = json.loads((path.parent / "logs" / str(job.apply_id) / "job.json").read_text())
    assert label["job"] == repr(job) and label["state"] == str(path)
    assert mode(path.parent / "job_state.pkl.lock") == 0o600


def test_another_job_that_runs_is_never_evicted(path: Path) -> None:
    first = Pretend("a")
    first.state(path)
    before = path.read_bytes()
    with pytest.raises(JobError, match="Pretend") as caught:
        Pretend("b").state(path)
    assert str(path) in str(caught.value)
    assert "monarch kill" in str(caught.value)
    assert list(RUNNING.values()) == ["a"]
    assert ENDED == []
    assert path.read_bytes() == before


def test_a_local_job_leaves_a_running_job_and_its_file_alone(path: Path) -> None:
    Pretend("a").state(path)
    before = path.read_bytes()
    job = LocalJob(("trainers",))
    job.apply()
    assert job.active
    job._find_or_start(path)
    job.kill()
    assert list(RUNNING.values()) == ["a"]
    assert path.read_bytes() == before


def test_a_job_that_has_ended_is_replaced(path: Path) -> None:
    first = Pretend("a")
    first.state(path)
    RUNNING.clear()
    second = Pretend("b")
    second.state(path)
    assert list(RUNNING) == [second.apply_id]
    assert job_load(path).apply_id == second.apply_id


def test_what_is_left_of_a_job_that_failed_is_removed_before_it_is_replaced(path: Path) -> None:
    broken = Broken("a")
    broken.state(path)
    old = broken.apply_id
    again = Broken("a")
    again.state(path)
    assert ENDED == [old]
    assert list(RUNNING) == [again.apply_id]


def test_a_failed_job_is_not_replaced_by_another_one(path: Path) -> None:
    Broken("a").state(path)
    with pytest.raises(JobError):
        Broken("b").state(path)
    assert ENDED == []


def test_kill_by_any_program_removes_the_file(path: Path) -> None:
    first = Pretend("a")
    first.state(path)
    job_load(path).kill()
    assert not path.exists()
    assert RUNNING == {}
    second = Pretend("a")
    second.state(path)
    third = Pretend("a")
    third.state(path)
    third.kill()
    assert not path.exists()
    assert RUNNING == {}
    assert not third.active
    assert third.apply_id is None


def test_kill_leaves_the_file_of_a_later_job(path: Path) -> None:
    first = Pretend("a")
    first.state(path)
    RUNNING.clear()
    second = Pretend("b")
    second.state(path)
    first.kill()
    assert job_load(path).apply_id == second.apply_id
    assert list(RUNNING) == [second.apply_id]


class Interrupted(Pretend):
    """SIGINT comes while it is being ended."""

    def __init__(self, what: str, times: int) -> None:
        super().__init__(what)
        self.times = times

    def _kill(self) -> None:
        for _ in range(self.times):
            signal.raise_signal(signal.SIGINT)
        super()._kill()


def test_an_interrupt_while_a_job_is_killed_comes_when_it_has_ended(path: Path) -> None:
    job = Interrupted("one", times=1)
    job.state(path)
    with pytest.raises(KeyboardInterrupt):
        job.kill()
    assert not RUNNING and not job.active and not path.exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_while_a_job_is_killed_comes_at_once(path: Path) -> None:
    job = Interrupted("one", times=2)
    job.state(path)
    with pytest.raises(KeyboardInterrupt):
        job.kill()
    assert RUNNING and job.active and path.exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_kill_of_a_job_that_never_ran_does_nothing(path: Path) -> None:
    Pretend("a").state(path)
    Pretend("a").kill()
    assert len(RUNNING) == 1
    assert path.exists()


def test_a_job_can_be_started_again_after_kill(path: Path) -> None:
    job = Pretend("a")
    job.state(path)
    first = job.apply_id
    job.kill()
    job.state(path)
    assert job.apply_id not in (None, first)
    assert list(RUNNING) == [job.apply_id]


def test_a_job_that_can_not_be_started_leaves_nothing(path: Path) -> None:
    job = Pretend("a", fails=True)
    with pytest.raises(ValueError, match="no machines"):
        job.state(path)
    assert RUNNING == {}
    assert not path.exists()
    assert not job.active
    assert job.apply_id is None
    assert KEPT == []


def test_a_job_that_can_not_be_saved_is_ended(path: Path) -> None:
    job = Pretend("a")
    job.what_for = threading.Lock()  # type: ignore[attr-defined]  # can't be pickled
    with pytest.raises(TypeError):
        job.state(path)
    assert RUNNING == {}
    assert not path.exists()


def test_a_job_is_told_that_it_may_outlive_the_program_once_it_is_saved(path: Path) -> None:
    job = Pretend("a")
    job.state(None)
    assert KEPT == []
    job.dump(path)
    assert KEPT == [job.apply_id]
    other = Pretend("b")
    other.state(path.with_name("other"))
    assert KEPT == [job.apply_id, other.apply_id]
    third = Pretend("c")
    third.apply()
    content = third.dumps()
    assert KEPT[2:] == [third.apply_id]
    assert job_loads(content).apply_id == third.apply_id


def test_what_apply_started_is_saved_by_state(path: Path) -> None:
    job = Pretend("a")
    job.apply()
    assert KEPT == []
    job.state(path)
    assert job_load(path).apply_id == job.apply_id
    assert len(RUNNING) == 1


def test_what_apply_started_evicts_nothing_either(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Pretend("a")
    first.state(path)
    second = Pretend("b")
    second.apply()
    second.state(path)
    assert job_load(path).apply_id == first.apply_id
    assert "not saved" in caplog.text
    assert KEPT == [first.apply_id]


def test_without_a_path_nothing_is_read_or_written(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    job = Pretend("a")
    job.state(None)
    assert list(tmp_path.iterdir()) == []
    job.kill()


def test_a_symlink_is_followed_and_kept(tmp_path: Path) -> None:
    link = tmp_path / "job_state.pkl"
    link.symlink_to("context/state.pkl")
    job = Pretend("a")
    job.state(link)
    assert link.is_symlink()
    assert job_load(tmp_path / "context" / "state.pkl").apply_id == job.apply_id
    assert Pretend("a").state(link) is not None
    assert len(RUNNING) == 1
    job.kill()
    assert link.is_symlink()
    assert not (tmp_path / "context" / "state.pkl").exists()


@pytest.mark.parametrize("others", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_not_read(path: Path, others: int) -> None:
    Pretend("a").state(path)
    path.chmod(others)
    for read in (lambda: job_load(path), lambda: Pretend("a").state(path)):
        with pytest.raises(JobError, match="others may write"):
            read()


class Bomb:
    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (os.environ["BOMB"],)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of other users")
def test_a_file_of_another_user_is_not_unpickled(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOMB", str(tmp_path / "exploded"))
    path.parent.mkdir()
    path.write_bytes(pickle.dumps(Bomb()))
    path.chmod(0o600)
    os.chown(path, 12345, 12345)
    for read in (lambda: job_load(path), lambda: Pretend("a").state(path)):
        with pytest.raises(JobError, match="12345"):
            read()
    assert not (tmp_path / "exploded").exists()
    os.chown(path, os.getuid(), os.getgid())
    # the same file is dangerous, and read, when it is this user's own
    with pytest.raises(JobError):
        job_load(path)
    assert (tmp_path / "exploded").exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files of other users")
def test_a_link_of_another_user_is_not_followed(path: Path, tmp_path: Path) -> None:
    job = Pretend("a")
    job.state(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    os.chown(link, 12345, 12345, follow_symlinks=False)
    for use in (lambda: job_load(link), lambda: Pretend("a").state(link), lambda: job.dump(link)):
        with pytest.raises(JobError, match="12345"):
            use()


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", pickle.dumps("a string"), b"cno_such_module\nJob\n)R."]
)
def test_what_can_not_be_read_is_an_error_and_is_left_there(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(JobError, match=r"job_state\.pkl"):
        Pretend("a").state(path)
    assert path.read_bytes() == content
    assert RUNNING == {}
    with pytest.raises(JobError):
        job_loads(content)


def test_a_folder_or_a_pipe_in_its_place_is_an_error_and_no_hang(path: Path) -> None:
    path.parent.mkdir()
    os.mkfifo(path)
    with pytest.raises(JobError, match="not a file"):
        job_load(path)


def test_loading_what_is_not_there_is_a_file_not_found_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="job_state"):
        job_load(path)


def test_a_job_that_does_not_run_can_be_saved_as_well(path: Path) -> None:
    Pretend("a").dump(path)
    job = job_load(path)
    assert not job.active
    Pretend("b").state(path)
    assert list(RUNNING.values()) == ["b"]


def test_a_write_that_fails_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Pretend("a")
    job.state(path)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        job.dump(path)
    assert job_load(path).apply_id == job.apply_id
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "job_state.pkl",
        "job_state.pkl.lock",
        "logs",
    ]


def test_many_programs_at_once_start_one_job(path: Path) -> None:
    ready = threading.Barrier(8)
    ids: list[str | None] = []

    def run() -> None:
        job = Pretend("a")
        ready.wait()
        job.state(path)
        ids.append(job.apply_id)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(ids) == 8
    assert len(set(ids)) == 1
    assert len(RUNNING) == 1


class Lent(Pretend):
    """Has a credential that is not saved."""

    _LIVE = (*JobTrait._LIVE, "credential")

    def __init__(self, what: str, credential: str) -> None:
        super().__init__(what)
        self.credential = credential

    def _rebind_connection_inputs(self, spec: JobTrait) -> None:
        assert isinstance(spec, Lent)
        self.credential = spec.credential

    def _state(self) -> JobState:
        CREDENTIALS.append(self.credential)
        return JobState({})


CREDENTIALS: list[str] = []


def test_a_job_from_the_file_gets_what_is_not_saved_from_the_spec(path: Path) -> None:
    CREDENTIALS.clear()
    Lent("a", "first").state(path)
    assert b"first" not in path.read_bytes()
    Lent("a", "second").state(path)
    assert CREDENTIALS == ["first", "second"]


def test_a_mesh_is_an_attribute_of_the_state() -> None:
    trainers: object = object()
    state = JobState({"trainers": trainers, "b": object()})  # type: ignore[dict-item]
    assert state.trainers is trainers
    assert "trainers" in dir(state)
    with pytest.raises(AttributeError, match="'a' is not a valid host mesh name.*b, trainers"):
        state.a
    assert (state.admin_url, state.telemetry_url, state.dashboard_url) == (None, None, None)
    assert (state.query_engine, state.query_engine_client) == (None, None)
    assert repr(state).startswith("JobState(hosts={'trainers':")


@pytest.mark.parametrize("name", ["admin_url", "query_engine", "_hosts", "", "a/b"])
def test_a_mesh_can_not_have_a_name_that_could_not_be_read(name: str) -> None:
    for make in (lambda: JobState({name: None}), lambda: LocalJob((name,))):  # type: ignore[dict-item]
        with pytest.raises(ValueError, match="called"):
            make()


def test_what_a_job_can_not_be_asked_for_is_refused_at_the_call(tmp_path: Path) -> None:
    job = Pretend("a")
    with pytest.raises(TypeError):
        job.enable_telemetry(no_such_field=1)
    with pytest.raises(ValueError, match=r"/absent'"):
        job.remote_mount(tmp_path / "absent")
    with pytest.raises(ValueError, match=r"\.venv/bin/python'"):
        job.remote_mount(tmp_path)


def test_a_job_that_another_version_has_saved_is_refused_and_not_touched(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Pretend("a")
    job.state(path)
    content = path.read_bytes()
    monkeypatch.setattr("monarch.job.base.cache.FORMAT", 3)
    for use in (
        lambda: Pretend("a").state(path),
        lambda: job_load(path),
        lambda: job_loads(content),
    ):
        with pytest.raises(
            JobError,
            match="saved by another version of pymonarch, in format 2; this one has format 3",
        ):
            use()
    assert path.read_bytes() == content and len(RUNNING) == 1
