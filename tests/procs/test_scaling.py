"""Jobs that get more hosts, fewer, or others for those that are lost, while they run."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.actors import Echo
from helpers.processes import agent_of
from helpers.waiting import wait_gone, wait_until
from monarch.actor import HostMesh
from monarch.config import configured
from monarch.job import JobError, JobTrait, LocalJob, ProcessJob
from monarch.job.base.contract import HostId, WorkersJob

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = pytest.mark.usefixtures("_process_test")


@contextmanager
def running(path: Path | None = None, **meshes: int) -> Iterator[ProcessJob]:
    """A job, ended with the block."""
    job = ProcessJob(meshes)
    try:
        job.state(path)
        yield job
    finally:
        job.kill()


def agents(hosts: HostMesh) -> list[int]:
    """The agent of each host."""
    with hosts.spawn_procs() as procs:
        return [agent_of(pid) for pid in procs.spawn("echo", Echo).pid.call().get().values()]


def workers(job: ProcessJob, mesh: str) -> list[int]:
    return [worker.pid for _, worker in sorted(job._workers[mesh].items())]


def test_a_mesh_grows_while_what_runs_on_it_goes_on() -> None:
    with running(trainers=1, others=1) as job:
        before = job.state(None).trainers
        procs = before.spawn_procs()
        echo = procs.spawn("echo", Echo)
        pid = echo.pid.call_one().get()
        job.scale(trainers=3)
        assert before.sizes == {"hosts": 1}, "a mesh is a snapshot"
        state = job.state(None)
        assert (state.trainers.sizes, state.others.sizes) == ({"hosts": 3}, {"hosts": 1})
        assert len(set(agents(state.trainers))) == 3
        assert echo.pid.call_one().get() == pid
        procs.stop().get()


def test_a_mesh_shrinks_from_its_highest_ranks(tmp_path: Path) -> None:
    with running(tmp_path / "job.pkl", trainers=3) as job:
        first, *gone = workers(job, "trainers")
        procs = job.state(None).trainers.slice(hosts=0).spawn_procs()
        echo = procs.spawn("echo", Echo)
        echo.pid.call_one().get()
        job.scale(trainers=1)
        for pid in gone:
            wait_gone(pid)
        assert workers(job, "trainers") == [first]
        assert job.state(None).trainers.sizes == {"hosts": 1}
        echo.pid.call_one().get()
        procs.stop().get()


def test_a_host_that_hangs_is_ended_when_the_mesh_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monarch.job.base.contract._SHUTDOWN_BOUND", 0.5)
    with running(trainers=2) as job:
        os.kill(workers(job, "trainers")[1], signal.SIGSTOP)
        (hanging,) = workers(job, "trainers")[1:]
        job.scale(trainers=1)
        wait_gone(hanging)


def test_lost_hosts_are_replaced_on_request_and_told(caplog: pytest.LogCaptureFixture) -> None:
    with running(trainers=2) as job:
        procs = job.state(None).trainers.slice(hosts=0).spawn_procs()
        echo = procs.spawn("echo", Echo)
        pid = echo.pid.call_one().get()
        kept, lost = workers(job, "trainers")
        os.kill(lost, signal.SIGKILL)
        wait_gone(lost)
        with pytest.raises(
            JobError, match=r"1 of 2 workers of this job have ended; scale\(replace_lost=True\)"
        ):
            job.state(None)
        with caplog.at_level(logging.WARNING, "monarch.supervision"):
            job.scale(replace_lost=True)
        assert "host 1 of mesh 'trainers' was lost" in caplog.text
        assert workers(job, "trainers")[0] == kept
        assert len(set(agents(job.state(None).trainers))) == 2
        assert echo.pid.call_one().get() == pid
        procs.stop().get()


def test_a_new_host_is_watched_as_the_first_ones_are(caplog: pytest.LogCaptureFixture) -> None:
    with running(trainers=1) as job:
        job.scale(trainers=2)
        job.state(None)
        os.kill(workers(job, "trainers")[1], signal.SIGKILL)
        wait_until(lambda: "worker trainers_1, process" in caplog.text, what="the news of its end")


def test_hosts_that_do_not_come_up_leave_the_job_as_it_was(tmp_path: Path) -> None:
    with running(tmp_path / "job.pkl", trainers=1) as job:
        before = workers(job, "trainers")
        with (
            configured(host_spawn_ready_timeout="1ms"),
            pytest.raises(JobError, match="did not serve within"),
        ):
            job.scale(trainers=2)
        assert workers(job, "trainers") == before
        assert job.state(None).trainers.sizes == {"hosts": 1}
        job.scale(trainers=2)
        assert len(set(agents(job.state(None).trainers))) == 2


@pytest.mark.parametrize(
    ("sizes", "error", "text"),
    [
        ({"others": 2}, ValueError, "no mesh 'others' in this job; it has: trainers"),
        ({"trainers": 0}, ValueError, "at least 1, got 0"),
        ({"trainers": "2"}, TypeError, "'2'"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(
    sizes: dict[str, int], error: type[Exception], text: str, tmp_path: Path
) -> None:
    with running(tmp_path / "job.pkl", trainers=1) as job:
        with pytest.raises(error, match=text):
            job.scale(**sizes)  # type: ignore[arg-type]
        assert job.state(None).trainers.sizes == {"hosts": 1}


def test_only_a_job_that_runs_and_has_hosts_of_its_own_can_be_scaled() -> None:
    with pytest.raises(JobError, match=r"while it runs; state\(\) starts it"):
        ProcessJob({"a": 1}).scale(a=2)
    job = LocalJob()
    job.state()
    with pytest.raises(JobError, match="can't be scaled"):
        job.scale(hosts=2)
    job.kill()


class Fixed(WorkersJob):
    """A kind of a user's own, as it is when it says nothing of scaling."""

    def _create(self, client_script: str | None) -> None: ...

    def _kill(self) -> None: ...

    def can_run(self, spec: JobTrait) -> bool:
        return True


@pytest.mark.parametrize(
    ("sizes", "replace_lost"), [({"a": 1}, False), ({"a": 3}, False), ({}, True)]
)
def test_a_kind_that_can_not_be_scaled_says_so_before_anything_changes(
    sizes: dict[str, int], replace_lost: bool
) -> None:
    job = Fixed({"a": 2})
    with pytest.raises(JobError, match="can't be scaled"):
        job._scale(sizes, replace_lost)
    assert job._meshes == {"a": 2}


class Listed(Fixed):
    """A kind that knows only of the hosts that it is to have, and whose machines can't be given
    back at first.
    """

    def __init__(self) -> None:
        super().__init__({"a": 3, "b": 1})
        self.did: list[object] = []
        self.troubles = ["refused", "not given back"]

    def _reported(self) -> dict[HostId, str]:
        return {
            (mesh, rank): f"{mesh}{rank}"
            for mesh, size in self._meshes.items()
            for rank in range(size)
        }

    def _check_scalable(self, hosts: Sequence[HostId]) -> None:
        if "refused" in self.troubles:
            self.troubles.remove("refused")
            raise JobError(f"refused {hosts}")

    def _add_hosts(self, hosts: Sequence[HostId]) -> None:
        self.did.append(("add", *hosts))

    def _shut_down(self, addresses: Collection[str]) -> None:
        self.did.append(("shut down", *addresses))

    def _remove_hosts(self, hosts: Sequence[HostId]) -> None:
        self.did.append(("remove", *hosts, dict(self._meshes)))
        if self.troubles:
            raise JobError(self.troubles.pop())


def test_hosts_that_go_are_shut_down_and_stay_the_jobs_until_they_are_given_back() -> None:
    job, new = Listed(), {"a": 1, "b": 2}
    with pytest.raises(JobError, match=r"refused \[\('b', 1\), \('a', 1\), \('a', 2\)\]"):
        job._scale(new, False)
    assert (job.did, job._meshes) == ([], {"a": 3, "b": 1})
    with pytest.raises(JobError, match="not given back"):
        job._scale(new, False)
    gone = [("shut down", "a1", "a2"), ("remove", ("a", 1), ("a", 2), new)]
    assert (job.did, job._meshes) == ([("add", ("b", 1)), *gone], {"a": 3, "b": 2})
    job.did.clear()
    job._scale(new, False)
    assert (job.did, job._meshes) == (gone, new)


def test_a_job_that_starts_again_is_as_it_was_described() -> None:
    with running(trainers=1) as job:
        job.scale(trainers=2)
        job.kill()
        assert job.state(None).trainers.sizes == {"hosts": 1}


ASK = """
    import sys
    from monarch.job import ProcessJob
    if __name__ == "__main__":
        job = ProcessJob({{"workers": {size}}})
        print(job.state().workers.sizes, job.apply_id)
        {then}
"""


def test_other_programs_see_a_job_as_it_was_scaled(home: Home) -> None:
    service = home.popen(
        [
            home.program(
                ASK.format(size=1, then="sys.stdin.readline(); print(job.state().workers.sizes)")
            )
        ],
        {},
        -1,
    )
    assert service.stdout is not None and service.stdin is not None
    first = service.stdout.readline()
    assert first.startswith("{'hosts': 1} ")
    home.run("from monarch.job import job_load; job_load().scale(workers=2)")
    print(file=service.stdin, flush=True)
    assert service.stdout.readline() == "{'hosts': 2}\n"
    service.communicate(timeout=60)
    scaled = first.replace("1", "2", 1)
    assert home.run(ASK.format(size=1, then="")) == scaled, (
        "the program that has described it finds it"
    )
    assert home.run(ASK.format(size=2, then="")) == scaled, (
        "as does one that describes what there is"
    )
    said = home.run(ASK.format(size=3, then=""), exit_code=1)
    assert "ProcessJob({'workers': 2})" in said and "Nothing was changed" in said
    home.run("from monarch.job import job_load; job_load().kill()")
    home.wait_nothing_left()


def test_hosts_that_another_program_removes_are_no_loss_to_the_owner(home: Home) -> None:
    owner = home.popen(
        [home.program(ASK.format(size=2, then="sys.stdin.readline()"))], {}, subprocess.PIPE
    )
    assert owner.stdout is not None
    assert owner.stdout.readline().startswith("{'hosts': 2} ")
    home.run("from monarch.job import job_load; job_load().scale(workers=1)")
    _, told = owner.communicate("\n", timeout=60)
    assert "worker workers_1" not in told and owner.returncode == 0, told
    home.run("from monarch.job import job_load; job_load().kill()")
    home.wait_nothing_left()


def test_a_job_on_another_machine_is_scaled_only_there() -> None:
    with running(trainers=1) as job:
        here, job._machine = job._machine, "elsewhere"
        with pytest.raises(JobError, match="only a program there can scale it"):
            job.scale(trainers=2)
        job._machine = here
        assert job._meshes == {"trainers": 1}


def test_a_job_that_another_program_has_ended_is_not_scaled(home: Home) -> None:
    said = home.run(
        """
        from monarch.job import ProcessJob, job_load
        job = ProcessJob({"workers": 1})
        job.state()
        job_load().kill()
        job.scale(workers=2)
        """,
        exit_code=1,
    )
    assert said.splitlines()[-1].endswith("can't be scaled: another program has ended it")
    home.wait_nothing_left()
