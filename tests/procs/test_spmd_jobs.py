"""`monarch.job.spmd`: commands of torchrun as jobs, and the hosts of a running torchrun as a
job.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from monarch.job import JobError, LocalJob, ProcessJob
from monarch.job.spmd import SPMDJob, StoreJob, serve

if TYPE_CHECKING:
    from helpers.jobs import Home

WRITES = (
    "import os\nopen('rank_' + os.environ['RANK'], 'w').write(os.environ['GROUP_RANK'] + ' of ' +"
    " os.environ['WORLD_SIZE'])\n"
)


def test_a_command_runs_on_this_machine(home: Home) -> None:
    (home.folder / "train.py").write_text(WRITES)
    home.run("""
        from monarch.job.spmd import serve
        job = serve(["torchrun", "--nproc-per-node", "2", "train.py"], scheduler="local_cwd")
        assert job.state().workers.sizes == {}
        job.run_spmd()
        job.kill()
    """)
    assert [(home.folder / f"rank_{rank}").read_text() for rank in range(2)] == ["0 of 2", "0 of 2"]


def test_a_command_runs_on_the_hosts_of_any_job(home: Home) -> None:
    (home.folder / "train.py").write_text(WRITES)
    home.run("""
        from monarch.job import ProcessJob
        from monarch.job.spmd import serve
        job = serve(["torchrun", "--nnodes=2", "train.py"], ProcessJob({"nodes": 2}))
        job.run_spmd()
        assert job.state().workers.sizes == {"hosts": 2}
        job.kill()
    """)
    assert [(home.folder / f"rank_{rank}").read_text() for rank in range(2)] == ["0 of 2", "1 of 2"]
    home.wait_nothing_left()


SERVED = """
from monarch.job import ProcessJob
from monarch.job.spmd import serve
job = ProcessJob({"nodes": 2})
own = serve(["torchrun", "--nnodes=2", "train.py"], ProcessJob({"nodes": 2}))
"""


@pytest.mark.slow
def test_the_command_serve_runs_one_after_the_other_on_hosts_that_stay(home: Home) -> None:
    (home.folder / "jobs.py").write_text(SERVED)
    (home.folder / "train.py").write_text(WRITES)
    (home.folder / "fails.py").write_text(
        "print('on stdout', flush=True)\nraise ValueError('unwell')\n"
    )
    home.monarch("serve", "--job", "jobs.job", "torchrun", "--nnodes", "2", "train.py")
    assert [(home.folder / f"rank_{rank}").read_text() for rank in range(2)] == ["0 of 2", "1 of 2"]
    first = json.loads(home.monarch("status", "--json"))["id"]
    said = home.monarch(
        "serve", "--json", "torchrun", "--nproc-per-node", "3", "fails.py", exit_code=1
    )
    told = json.loads(said.splitlines()[0])  # stdout comes first, and has nothing else
    assert (told["id"], told["status"], told["restarts"]) == (first, 1, 0)
    assert "on stdout" in said and told["failed"] and "ValueError: unwell" in said
    assert "give one, such as torchrun train.py" in home.monarch("serve", exit_code=1)
    assert "hello" in home.monarch("exec", "echo", "hello")
    home.monarch("kill")
    home.wait_nothing_left()


def test_the_command_of_a_served_job_runs_without_being_typed_again(home: Home) -> None:
    (home.folder / "jobs.py").write_text(SERVED)
    (home.folder / "train.py").write_text(WRITES)
    home.monarch("apply", "jobs.own")
    home.monarch("serve")
    assert [(home.folder / f"rank_{rank}").read_text() for rank in range(2)] == ["0 of 2", "1 of 2"]
    home.monarch("kill")
    home.wait_nothing_left()


def test_a_rank_that_fails_is_an_error_with_its_traceback(home: Home) -> None:
    (home.folder / "train.py").write_text("raise ValueError('unwell')\n")
    said = home.run("""
        from monarch.job import JobError
        from monarch.job.spmd import serve
        try:
            serve(["python", "train.py"], "local").run_spmd()
        except JobError as error:
            print("JobError:", error)
    """)
    assert "JobError: train.py failed on rank 0 first" in said and "ValueError: unwell" in said


def test_what_can_not_be_served_is_refused_at_the_call() -> None:
    with pytest.raises(ValueError, match="command cannot be empty"):
        serve([], "local")
    with pytest.raises(ValueError, match="this machine is one host"):
        serve(["torchrun", "--nnodes", "2", "train.py"], "local")
    with pytest.raises(JobError, match=r"no scheduler 'mast_conda' here.*ProcessJob"):
        serve(["torchrun", "train.py"], "mast_conda")
    with pytest.raises(ValueError, match="a command as a list, or an AppDef"):
        serve(3, "local")


def test_of_an_appdef_the_first_role_runs() -> None:
    first = SimpleNamespace(
        name="trainer", entrypoint="torchrun", args=["--nproc-per-node=2", "train.py"]
    )
    with pytest.warns(UserWarning, match="of 2 roles only the first runs: 'trainer'"):
        job = serve(SimpleNamespace(roles=[first, first]), "local")
    assert (
        repr(job)
        == "SPMDJob(['torchrun', '--nproc-per-node=2', 'train.py'], LocalJob(('workers',)))"
    )


def test_a_job_serves_any_command_on_the_same_hosts() -> None:
    local = SPMDJob(["python", "a.py"], LocalJob(("workers",)))
    assert not local.can_run(LocalJob())
    assert not SPMDJob(["python", "a.py"], ProcessJob({"a": 1})).can_run(
        SPMDJob(["python", "a.py"], ProcessJob({"a": 1}))
    )


class Keys(dict[str, str]):
    def set(self, key: str, value: str) -> None:
        self[key] = value


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        ({"rank": 4}, "rank 4 of 4"),
        ({"local_rank": 2}, "local rank 2 of 2"),
        ({"world_size": 3}, "rank 1 of 3, local rank 1 of 2"),
        ({"transport": "udp"}, "transport is 'ipc' or 'tcp', got 'udp'"),
    ],
)
def test_ranks_that_make_no_sense_are_refused(rank: dict[str, int], said: str) -> None:
    given = {"rank": 1, "local_rank": 1, "world_size": 4, "local_world_size": 2, **rank}
    with pytest.raises(ValueError, match=said):
        StoreJob.from_store(Keys(), **given)  # type: ignore[arg-type]


def test_a_rank_that_is_not_given_is_that_of_torchrun_or_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="give rank=, as RANK is not set"):
        StoreJob.from_store(Keys(), local_rank=0, world_size=1, local_world_size=1)


# Of a program that is the one rank of a torchrun: what is there of the folder of its worker, and of
# its descriptors.
ALONE = """
    import os, resource
    from pathlib import Path
    from monarch.job import JobError
    from monarch.job import spmd

    class Keys(dict):
        set = dict.__setitem__
        get = dict.__getitem__

    folders = []
    make = spmd.tempfile.mkdtemp
    spmd.tempfile.mkdtemp = lambda **given: folders.append(make(**given)) or folders[-1]

    def start():
        return spmd.StoreJob.from_store(Keys(), rank=0, local_rank=0, world_size=1, local_world_size=1)
"""


def test_a_worker_starts_in_a_program_with_many_open_files_and_leaves_nothing(home: Home) -> None:
    said = home.run(
        ALONE
        + """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2048)), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    hosts = start().state().monarch_worker
    hosts.initialized.get()
    assert Path(folders[0], "worker").exists()
    hosts.shutdown().get()
    print(folders[0])
    """
    )
    assert not Path(said.strip()).exists()
    home.wait_nothing_left()


def test_a_worker_that_can_not_start_leaves_nothing(home: Home) -> None:
    said = home.run(
        ALONE
        + """
    from monarch.job.base import launch
    launch.worker_command = lambda spec: ["false"]
    before = os.listdir("/proc/self/fd")
    try:
        start()
    except JobError as error:
        print(error)
    assert os.listdir("/proc/self/fd") == before
    assert not Path(folders[0]).exists()
    """
    )
    assert "ended before it served" in said


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="needs torch, which is not installed"
)
@pytest.mark.slow
def test_ranks_of_torchrun_become_hosts_of_their_first(home: Home) -> None:
    (home.folder / "train.py").write_text(
        "import os\nfrom torch.distributed import TCPStore\nfrom monarch.actor import Actor,"
        " endpoint\nfrom monarch.job.spmd import StoreJob\nclass Echo(Actor):\n    @endpoint\n   "
        " def echo(self, text: str) -> str:\n        return text\nif __name__ == '__main__':\n   "
        " rank = int(os.environ['RANK'])\n    store = TCPStore('localhost',"
        " int(os.environ['MASTER_PORT']), is_master=False)\n    job = StoreJob.from_store(store,"
        " local_rank=0, local_world_size=1)\n    assert (job is None) == (rank > 0)\n    if job is"
        " not None:\n        procs = job.state().monarch_worker.spawn_procs({'gpus': 2})\n       "
        " print('answers', procs.spawn('echo', Echo).echo.call('hi').get().values(), flush=True)\n "
        "       store.set('done', '1')\n    store.wait(['done'])\n"
    )
    program = home.popen(
        ["-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"],
        {"TMPDIR": str(home.folder)},
    )
    assert "answers ['hi', 'hi', 'hi', 'hi']" in home.finish(program, 0)
    home.wait_nothing_left()
