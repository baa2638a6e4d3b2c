"""Jobs, as a user has them: hosts by name, found again by the next run, gone when they are not
wanted any more.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.actors import Echo
from helpers.certificates import authority
from helpers.waiting import wait_gone
from monarch.actor import HostMesh, SupervisionError
from monarch.job import JobError, JobState, LocalJob, ProcessJob
from monarch.telemetry import read

if TYPE_CHECKING:
    from helpers.faults import Faults
    from helpers.jobs import Home

Start = Callable[..., ProcessJob]


@pytest.fixture
def start(_process_test: None) -> Iterator[Start]:
    """`start({"a": 2})`: a process job that is ended with the test."""
    jobs: list[ProcessJob] = []

    def make(*args: object, **kwargs: object) -> ProcessJob:
        jobs.append(ProcessJob(*args, **kwargs))  # type: ignore[arg-type]
        return jobs[-1]

    yield make
    for job in jobs:
        job.kill()


def pids(hosts: HostMesh) -> list[int]:
    with hosts.spawn_procs() as procs:
        return procs.spawn("echo", Echo).pid.call().get().values()


def test_hosts_and_failures_on_them_have_the_names_of_their_job(
    start: Start, faults: Faults
) -> None:
    hosts = start({"trainers": 2}).state(cached_path=None).trainers
    here = os.uname().nodename
    with hosts.spawn_procs() as procs:
        echo = procs.spawn("echo", Echo)
        pids = echo.pid.call().get().values()
        found = {row["machine"] for row in read("hosts").get().rows("hosts")}
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(SupervisionError) as lost:
            echo.slice(hosts=1).say.call_one("hi").get()
        [failure] = faults.wait_for(1)
    assert found >= {f"trainers[0] on {here}", f"trainers[1] on {here}"}
    told = f"pid {pids[1]}, trainers[1] on {here}"
    assert told in str(lost.value) and told in failure.report()


def test_a_local_job_is_this_machine_under_each_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    job = LocalJob(("trainers", "generators"))
    with pytest.raises(JobError, match=r"call state\(\) first"):
        job.why()
    state = job.state()
    assert type(state) is JobState
    # in which nothing stands, whatever else this client has
    assert "trainers" not in job.why(seconds=0.1).sentence
    with state.trainers.spawn_procs({"gpus": 2}) as procs:
        assert procs.spawn("echo", Echo).say.call("hi").get().values() == ["hi", "hi"]
    assert not Path(".monarch").exists()
    job.kill()


def test_each_host_of_a_process_job_runs_actors_in_processes_of_its_own(
    start: Start, tmp_path: Path
) -> None:
    state = start({"trainers": 2, "generators": 1}).state(tmp_path / "job.pkl")
    assert state.trainers.sizes == {"hosts": 2}
    assert state.generators.sizes == {"hosts": 1}
    procs = state.trainers.spawn_procs({"gpus": 2})
    assert procs.sizes == {"hosts": 2, "gpus": 2}
    found = procs.spawn("echo", Echo).pid.call().get().values()
    assert len({*found, *pids(state.generators), os.getpid()}) == 6
    procs.stop().get()


def test_environment_variables_of_the_job_are_those_of_its_actors(start: Start) -> None:
    state = start({"a": 1}, env={"GREETING": "hello"}).state(None)
    with state.a.spawn_procs() as procs:
        assert procs.spawn("echo", Echo).environment.call("GREETING").get().values() == ["hello"]
    assert "GREETING" not in os.environ


def test_state_can_be_asked_for_again(start: Start) -> None:
    job = start({"a": 1})
    first, second = job.state(None), job.state(None)
    assert pids(first.a) != pids(second.a)


def test_kill_ends_what_runs_there_without_a_fault_for_the_program(start: Start) -> None:
    job = start({"a": 2})
    procs = job.state(None).a.spawn_procs({"gpus": 2})
    running = procs.spawn("echo", Echo).pid.call().get().values()
    running += job.state(None).a.spawn_procs().spawn("echo", Echo).pid.call().get().values()
    job.kill()
    for pid in running:
        wait_gone(pid)
    assert not job.active
    procs.stop().get()


def test_a_killed_job_starts_anew(start: Start) -> None:
    job = start({"a": 1})
    first = pids(job.state(None).a)
    job.kill()
    assert pids(job.state(None).a) != first


@pytest.mark.parametrize(
    ("meshes", "error", "text"),
    [
        ({}, ValueError, "at least one"),
        ({"a": 0}, ValueError, "at least 1"),
        ({"a": "2"}, TypeError, "'2'"),
        ({"a": True}, TypeError, "True"),
        ({"admin_url": 1}, ValueError, "admin_url"),
        (["a"], TypeError, "names and numbers"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_when_it_is_described(
    meshes: object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ProcessJob(meshes)  # type: ignore[arg-type]


def test_environment_variables_must_be_text() -> None:
    with pytest.raises(TypeError, match="N"):
        ProcessJob({"a": 1}, env={"N": 1})  # type: ignore[dict-item]


def test_a_job_with_other_variables_is_another_job_and_their_values_are_not_told(
    start: Start, tmp_path: Path
) -> None:
    start({"a": 1}, env={"TOKEN": "first-value"}).state(tmp_path / "job.pkl")
    with pytest.raises(JobError, match="not shown") as caught:
        ProcessJob({"a": 1}, env={"TOKEN": "second-value"}).state(tmp_path / "job.pkl")
    assert "TOKEN" in str(caught.value)
    assert "-value" not in str(caught.value)


def test_a_process_job_runs_no_scripts(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="LocalJob"):
        ProcessJob({"a": 1}).apply("script.py")


USE = """
    import os, sys
    from monarch.actor import Actor, endpoint
    from monarch.job import ProcessJob

    class Worker(Actor):
        @endpoint
        def parent(self) -> int:
            return os.getppid()

    if __name__ == "__main__":
        job = ProcessJob({"workers": 1})
        hosts = job.state().workers
        spawners = hosts.spawn_procs().spawn("worker", Worker).parent.call().get().values()
        print(job.apply_id)
        if "kill" in sys.argv:
            job.kill()
"""


def test_the_next_run_of_a_program_finds_the_workers_of_the_first(home: Home) -> None:
    first, second = home.run(USE), home.run(USE)
    assert first == second
    assert len(first.split()) == 1, "nothing is printed but what the program prints"
    assert home.run(USE, "kill") == first
    home.wait_nothing_left()
    assert home.run(USE, "kill") != first


def test_commands_find_the_job_that_a_program_has_started(home: Home) -> None:
    home.run(USE)
    assert home.monarch("exec", "--all", "echo", "found").endswith("found\n")
    assert "ProcessJob({'workers': 1}) runs" in home.monarch("status")
    home.monarch("kill")
    home.wait_nothing_left()
    assert "`monarch apply module.attribute` starts one" in home.monarch(
        "exec", "--all", "true", exit_code=1
    )


def test_another_program_can_end_the_job(home: Home) -> None:
    home.run(USE)
    assert home.processes() != []
    home.run("from monarch.job import job_load; job_load().kill()")
    home.wait_nothing_left()
    assert not (home.folder / ".monarch" / "job_state.pkl").exists()


def test_kill_ends_what_actors_started_as_well(home: Home) -> None:
    home.run("""
        import subprocess, sys
        from monarch.actor import Actor, endpoint
        from monarch.job import ProcessJob

        SLEEP = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]

        class Worker(Actor):
            @endpoint
            def start(self) -> None:
                subprocess.Popen(SLEEP, start_new_session=True)
                subprocess.Popen(SLEEP)

        job = ProcessJob({"workers": 1})
        job.state().workers.spawn_procs().spawn("worker", Worker).start.call().get()
        """)
    home.run("from monarch.job import job_load; job_load().kill()")
    assert home.left() == []


def test_a_job_that_is_not_saved_ends_with_its_program(home: Home) -> None:
    home.run("from monarch.job import ProcessJob; ProcessJob({'a': 2}).state(cached_path=None)")
    home.wait_nothing_left()


def test_a_job_of_another_description_is_left_running(home: Home) -> None:
    first = home.run(USE)
    out = home.run(
        "from monarch.job import ProcessJob; ProcessJob({'other': 1}).state()", exit_code=1
    )
    assert "ProcessJob({'workers': 1})" in out
    assert "ProcessJob({'other': 1})" in out
    assert "monarch kill" in out
    home.run("from monarch.job import LocalJob; LocalJob().state()")
    assert home.run(USE, "kill") == first


def test_two_jobs_have_room_in_one_folder(home: Home) -> None:
    first = home.run(USE)
    home.run(
        "from monarch.job import ProcessJob; ProcessJob({'other':"
        " 1}).state(cached_path='other.pkl')"
    )
    assert home.run(USE, "kill") == first
    home.run("from monarch.job import job_load; job_load('other.pkl').kill()")


def test_the_workers_of_a_job_can_be_shut_down_by_a_client_and_are_started_again(
    home: Home,
) -> None:
    out = home.run("""
        from monarch.job import ProcessJob
        job = ProcessJob({"workers": 1})
        job.state().workers.shutdown().get()
        """)
    assert out == "", "an end in order is no news"
    assert [log.read_text() for log in home.folder.glob(".monarch/logs/*/workers/*.log")] == [""]
    home.run(USE, "kill")


def test_a_script_runs_as_a_batch_with_its_output_in_files(home: Home) -> None:
    (home.folder / "train.py").write_text(
        "from monarch.job import ProcessJob\n"
        "state = ProcessJob({'not these': 1}).state()\n"
        "print(sorted(state._hosts), state.trainers.sizes)\n"
    )
    out = home.run("""
        from monarch.job import LocalJob
        job = LocalJob(("trainers",))
        job.apply(client_script="train.py")
        assert job.process.wait(60) == 0
        """)
    assert out == ""
    (log,) = home.folder.glob(".monarch/logs/*/stdout.log")
    assert log.read_text() == "['trainers'] {}\n"
    assert (log.parent / "stderr.log").read_text() == ""


def test_kill_ends_the_script_of_a_batch(home: Home) -> None:
    (home.folder / "train.py").write_text("import time\ntime.sleep(600)\n")
    home.run("""
        from monarch.job import LocalJob
        job = LocalJob()
        job.apply(client_script="train.py")
        job.kill()
        assert job.process.poll() is not None
        """)
    assert home.left() == []


def test_a_script_that_does_not_exist_is_refused(home: Home) -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.py"):
        LocalJob().apply("nowhere.py")
    with pytest.raises(ValueError, match="no local batch job"):
        LocalJob().process


def test_the_output_of_workers_is_kept_beside_the_file(home: Home) -> None:
    home.run(USE)
    logs = home.folder / ".monarch" / "logs"
    assert sorted(path.name for path in logs.glob("*/workers/*")) == ["workers_0.log"]
    home.run(USE, "kill")
    assert list(logs.glob("*/workers/*")) != [], "to be read after the end"


def test_programs_that_start_at_once_share_one_job(home: Home) -> None:
    programs = [home.start(USE) for _ in range(3)]
    outputs = {program.communicate(timeout=60) for program in programs}
    assert len(outputs) == 1, outputs
    assert home.run(USE, "kill") == outputs.pop()[0]


CONFIGURED = """
    import os
    from monarch.actor import Actor, endpoint
    from monarch.job import hosts_from_config

    class Worker(Actor):
        @endpoint
        def greet(self) -> str | None:
            return os.environ.get("GREETING")

    hosts = hosts_from_config("trainers")
    print(hosts.sizes, hosts.spawn_procs().spawn("worker", Worker).greet.call().get().values())
    assert hosts_from_config("trainers").spawn_procs().spawn("worker", Worker).greet.call().get()
"""


def test_a_file_names_worker_processes_that_end_with_the_program(home: Home) -> None:
    (home.folder / "monarch.toml").write_text(
        '[hosts.trainers]\nprocesses = 2\nenv = { GREETING = "hi" }\n'
    )
    assert home.run(CONFIGURED) == "{'hosts': 2} ['hi', 'hi']\n"
    home.wait_nothing_left()


def test_a_file_names_workers_by_their_addresses(home: Home) -> None:
    home.monarch("secret", "hosts/secret")
    with home.worker("--secret-file", "hosts/secret") as address:
        (home.folder / "hosts" / "mine.toml").write_text(
            f'[hosts.trainers]\nworkers = ["{address}"]\nsecret_file = "secret"\n'
        )
        assert (
            home.run(CONFIGURED, env={"MONARCH_HOSTS": "hosts/mine.toml"})
            == "{'hosts': 1} [None]\n"
        )


def test_a_file_names_certificates(home: Home) -> None:
    ca = authority()
    pems = {"ca": ca.pem, "worker": ca.sign("worker").both, "me": ca.sign("me").both}
    for name, pem in pems.items():
        (home.folder / f"{name}.pem").write_text(pem)
    nowhere = {"MONARCH_SECRET": "", "MONARCH_SECRET_FILE": "", "HOME": str(home.folder)}
    with home.worker("--ca", "ca.pem", "--private-key", "worker.pem", env=nowhere) as address:
        (home.folder / "monarch.toml").write_text(
            f'[hosts.trainers]\nworkers = ["{address}"]\nca = "ca.pem"\nprivate_key = "me.pem"\n'
        )
        assert home.run(CONFIGURED, env=nowhere) == "{'hosts': 1} [None]\n"
