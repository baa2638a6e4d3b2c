"""Workers that die, hang or never start, and programs that die while they start some: who is told,
what is left.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.waiting import wait_gone, wait_until
from monarch.config import configured
from monarch.job import JobError, ProcessJob, job_load
from monarch.job.base import launch, processes

if TYPE_CHECKING:
    from helpers.jobs import Home


@pytest.fixture
def state_file(tmp_path: Path) -> Iterator[Path]:
    """Where a test saves its job, which is ended with it."""
    path = tmp_path / "job.pkl"
    yield path
    if path.exists():
        job_load(path).kill()


def customized(tmp_path: Path, code: str) -> dict[str, str]:
    """Environment of workers whose interpreter runs some code first."""
    (tmp_path / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}


def worker_pids(job: ProcessJob) -> list[int]:
    return [worker.pid for worker in job._all_workers()]


def is_zombie(pid: int) -> bool:
    return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()


@pytest.fixture(autouse=True)
def temporary(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A folder for temporary files that no other test uses at the same time; its path is short
    enough for sockets.
    """
    tmp_path_factory.getbasetemp()  # is made when it is first asked for, and not in there
    with tempfile.TemporaryDirectory(prefix="mj") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield
        monkeypatch.undo()


def folders() -> set[Path]:
    return set(Path(tempfile.gettempdir()).glob("monarch_job_*"))


def test_a_worker_that_dies_at_its_start_is_an_error_at_once_with_its_output(
    tmp_path: Path,
) -> None:
    before = folders()
    env = customized(tmp_path, "import os\nprint('the disk is on fire', flush=True)\nos._exit(3)\n")
    job = ProcessJob({"workers": 2}, env=env)
    with pytest.raises(JobError, match="exit status 3") as caught:
        job.state(tmp_path / "job.pkl")
    assert "the disk is on fire" in str(caught.value)
    assert "workers_" in str(caught.value)
    assert str(tmp_path / "logs") in str(caught.value)
    assert not (tmp_path / "job.pkl").exists()
    assert not job.active
    assert folders() == before


def test_no_worker_stays_a_zombie_when_all_have_died_at_their_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids: list[int] = []
    wait_ready = launch.wait_ready

    def later(workers: Sequence[launch.WorkerProcess], *others: Any) -> None:
        pids.extend(worker.pid for worker in workers)
        wait_until(lambda: all(map(is_zombie, pids)), what="the end of all workers")
        wait_ready(workers, *others)

    monkeypatch.setattr(launch, "wait_ready", later)
    with pytest.raises(JobError, match="exit status 3"):
        ProcessJob({"workers": 2}, env=customized(tmp_path, "import os; os._exit(3)")).state(None)
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_job_whose_folder_has_gone_is_ended_all_the_same() -> None:
    job = ProcessJob({"workers": 2})
    job.state(None)
    pids = worker_pids(job)
    for folder in folders():  # as workers do that lose the program they belong to
        shutil.rmtree(folder)
    job.kill()
    for pid in pids:
        wait_gone(pid)


def test_a_worker_that_is_killed_at_its_start_is_named_with_the_signal(tmp_path: Path) -> None:
    env = customized(tmp_path, "import os\nos.kill(os.getpid(), 9)\n")
    with pytest.raises(JobError, match="signal 9"):
        ProcessJob({"workers": 1}, env=env).state(None)


def test_an_interpreter_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="Fatal Python error"):
        ProcessJob({"workers": 1}, env={"PYTHONHOME": "/nowhere"}).state(None)


def test_workers_not_ready_in_time_are_an_error_and_are_ended(
    tmp_path: Path,
) -> None:
    before = folders()
    env = customized(
        tmp_path,
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)\n",
    )
    with configured(host_spawn_ready_timeout="500ms"):
        with pytest.raises(JobError, match="host_spawn_ready_timeout"):
            ProcessJob({"workers": 2}, env=env).state(None)
    assert folders() == before


def test_a_worker_that_dies_is_reported_with_its_output_and_the_job_starts_anew(
    state_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = ProcessJob({"workers": 2})
    job.state(state_file).workers.initialized.get()
    first, second = job._all_workers()
    with first.log.open("a") as log:
        log.write("last words\n")
    os.kill(first.pid, signal.SIGKILL)
    wait_until(lambda: "last words" in caplog.text, what="the report")
    assert "signal 9" in caplog.text
    assert "workers_0" in caplog.text
    with pytest.raises(JobError, match="workers_0.*\n.*last words"):
        job.state(state_file)

    again = ProcessJob({"workers": 2})
    again.state(state_file)
    wait_gone(second.pid)
    assert again.apply_id != job.apply_id
    job.kill()
    assert job_load(state_file).apply_id == again.apply_id
    again.kill()


def test_the_end_of_a_job_by_any_program_is_no_news(
    state_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = ProcessJob({"workers": 2})
    job.state(state_file)
    pids = worker_pids(job)
    job_load(state_file).kill()
    for pid in pids:
        wait_gone(pid)
    job.kill()  # the watch ends with this, after what it had to say
    assert caplog.text == ""


def test_a_job_on_another_machine_that_shares_the_folder_is_left_alone(
    state_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ProcessJob({"workers": 1})
    job.state(state_file)
    here = os.uname()
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((here[0], "elsewhere", *here[2:])))
    with pytest.raises(JobError, match=f"on machine {here.nodename!r}"):
        ProcessJob({"workers": 1}).state(state_file)
    with pytest.raises(JobError, match="only a program there"):
        job_load(state_file).kill()
    monkeypatch.undo()
    ProcessJob({"workers": 1}).state(state_file)
    assert job_load(state_file).apply_id == job.apply_id
    job_load(state_file).kill()
    job.kill()


def test_a_program_whose_job_another_one_ends_says_so_and_ends(home: Home) -> None:
    program = home.start("""
        import time
        from monarch.actor import Actor, endpoint
        from monarch.job import ProcessJob

        class Worker(Actor):
            @endpoint
            def work(self) -> None:
                print("working", flush=True)
                time.sleep(600)

        ProcessJob({"workers": 1}).state().workers.spawn_procs().spawn("worker", Worker).work.call().get()
        """)
    assert program.stdout is not None
    assert program.stdout.readline() == "working\n"
    job_load(home.folder / ".monarch" / "job_state.pkl").kill()
    _, said = program.communicate(timeout=60)
    assert program.returncode == 1
    assert "worker.work()" in said
    assert "internal error" not in said


def test_a_program_that_dies_while_workers_start_leaves_none_behind(home: Home) -> None:
    gate = home.folder / "go"
    (home.folder / "site").mkdir()
    (home.folder / "site" / "sitecustomize.py").write_text(
        f"import os, time\nprint('here', flush=True)\nwhile not os.path.exists({str(gate)!r}):"
        " time.sleep(0.01)\n"
    )
    program = home.start("""
        import os
        from monarch.job import ProcessJob
        path = os.pathsep.join(["site", os.environ.get("PYTHONPATH", "")])
        ProcessJob({"workers": 2}, env={"PYTHONPATH": path}).state()
        """)
    wait_until(
        lambda: (
            sum(
                "here" in log.read_text()
                for log in home.folder.glob(".monarch/logs/*/workers/*.log")
            )
            == 2
        ),
        what="both workers to start",
    )
    program.kill()
    program.communicate()
    gate.touch()
    home.wait_nothing_left()
    assert not (home.folder / ".monarch" / "job_state.pkl").exists()


def test_a_job_that_is_not_saved_ends_with_its_program_also_if_that_is_killed(home: Home) -> None:
    program = home.start("""
        import time
        from monarch.job import ProcessJob
        state = ProcessJob({"workers": 2}).state(cached_path=None)
        print("running", flush=True)
        time.sleep(600)
        """)
    assert program.stdout is not None
    assert program.stdout.readline() == "running\n"
    assert len(home.processes()) >= 3
    program.kill()
    program.communicate()
    home.wait_nothing_left()


def test_a_saved_job_survives_the_death_of_its_program(home: Home) -> None:
    program = home.start("""
        import time
        from monarch.job import ProcessJob
        state = ProcessJob({"workers": 1}).state()
        print("running", flush=True)
        time.sleep(600)
        """)
    assert program.stdout is not None
    assert program.stdout.readline() == "running\n"
    program.kill()
    program.communicate()
    job = job_load(home.folder / ".monarch" / "job_state.pkl")
    assert isinstance(job, ProcessJob)
    assert job.can_run(ProcessJob({"workers": 1}))
    job.kill()


def test_a_process_number_that_has_another_owner_by_now_is_left_alone(
    state_file: Path,
) -> None:
    job = ProcessJob({"workers": 1})
    job.state(state_file)
    (worker,) = job._all_workers()
    (stranger,) = [pid for pid in [os.getppid()] if pid != worker.pid]
    job._workers["workers"][1] = worker._replace(name="workers_1", pid=stranger)
    job.dump(state_file)
    loaded = job_load(state_file)
    assert not loaded.can_run(job)
    job.kill()
    wait_gone(worker.pid)
    os.kill(stranger, 0)


def test_a_child_in_the_last_moments_of_its_life_is_waited_for() -> None:
    child = os.posix_spawn("/bin/sleep", ["sleep", "1000"], {})
    try:
        assert processes.reap(child) is None
    finally:
        os.kill(child, signal.SIGKILL)
    assert processes.reap(child, 60) == -signal.SIGKILL
    assert processes.reap(child, 60) is None  # it is no child any more
