"""Jobs on a real Slurm: hosts that are nodes, found again by the next run, gone when they are not
wanted any more.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.hostile import IN_SUCH_A_FOLDER, nothing_was_run
from helpers.slurm import command_of, environment_of
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from helpers.jobs import Home
    from helpers.slurm import Slurm

USE = """
    import os, sys
    from monarch.actor import Actor, endpoint
    from monarch.job import SlurmJob

    class Worker(Actor):
        @endpoint
        def node(self) -> str:
            return os.environ["SLURMD_NODENAME"]

        @endpoint
        def variables(self, *names: str) -> list[str]:
            return [os.environ.get(name, "") for name in names]

    def ask(hosts, *names):
        with hosts.spawn_procs() as procs:
            worker = procs.spawn("worker", Worker)
            return (worker.variables.call(*names) if names else worker.node.call()).get().values()
"""
TWO_MESHES = (
    USE
    + """
    if __name__ == "__main__":
        job = SlurmJob({"trainers": 2, "generators": 1}, exclusive=False)
        state = job.state()
        print(ask(state.trainers), ask(state.generators), job.apply_id, flush=True)
        if "kill" in sys.argv:
            job.kill()
"""
)
SERVICE = (
    USE
    + """
    import itertools, logging
    import monarch.actor
    monarch.actor.unhandled_fault_hook = lambda failure: None
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    job = SlurmJob({"hosts": 3}, exclusive=False, time_limit="10:00")
    hosts = job.state().hosts
    procs = hosts.spawn_procs(restart=None)
    worker = procs.spawn("worker", Worker)
    for wanted in itertools.chain([None], sys.stdin):
        part = worker if wanted is None else worker.slice(hosts=slice(0, int(wanted)))
        try:
            print(sorted(part.node.call().get().values()), flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
"""
)


def active(slurm: Slurm) -> list[str]:
    """The jobs that run or wait, by name and state."""
    return slurm.ask("squeue", "-h", "-t", "PENDING,RUNNING", "-o", "%j %T").splitlines()


def workers_of(home: Home, node: str) -> list[int]:
    """The worker processes of a node."""
    here = [pid for pid in home.processes() if f"SLURMD_NODENAME={node}" in environment_of(pid)]
    return [pid for pid in here if "worker_main" in command_of(pid)]


def test_two_meshes_on_three_nodes_are_used_found_again_and_ended(home: Home, slurm: Slurm) -> None:
    first = home.run(TWO_MESHES)
    assert first.startswith("['n0', 'n1'] ['n2'] ")
    assert slurm.ask("squeue", "-h", "-o", "%j %D").split() == ["monarch_job", "3"]
    assert home.run(TWO_MESHES, "kill") == first
    home.wait_nothing_left()
    assert active(slurm) == []
    assert not (home.folder / ".monarch" / "job_state.pkl").exists()
    assert [*(home.folder / ".monarch" / "slurm").iterdir()] == []


HOSTILE = (
    USE
    + IN_SUCH_A_FOLDER
    + """
    if __name__ == "__main__":
        job = SlurmJob({WORD: 1}, python_exe=PYTHON, job_name=WORD, slurm_args=[f"--comment={WORD}"], exclusive=False)
        hosts = getattr(job.state(), WORD)
        print(ask(hosts, "SLURM_JOB_NAME"), flush=True)
        print(sorted(name for _, _, names in os.walk(".monarch/logs") for name in names if WORD in name) == [
            WORD + ".err", WORD + ".out", WORD + "_0.log"
        ])
        job.kill()
"""
)


def test_names_that_a_shell_would_run_or_slurm_would_replace_are_names_there(
    home: Home, slurm: Slurm
) -> None:
    assert home.run(HOSTILE).endswith("\nTrue\n")
    home.wait_nothing_left()
    assert active(slurm) == [] and nothing_was_run(home.folder)


def test_lost_workers_nodes_and_clients_leave_the_rest_of_the_job_usable(
    home: Home, slurm: Slurm
) -> None:
    client = home.popen([home.program(SERVICE)], {}, subprocess.PIPE)
    assert client.stdin is not None and client.stdout is not None
    assert client.stdout.readline() == "['n0', 'n1', 'n2']\n"
    (worker,) = workers_of(home, "n2")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: workers_of(home, "n2") == [], what="the end of the worker")
    print(2, file=client.stdin, flush=True)
    assert client.stdout.readline() == "['n0', 'n1']\n"
    slurm.kill_node("n1")
    print(1, file=client.stdin, flush=True)
    assert client.stdout.readline() == "['n0']\n"
    assert active(slurm) == ["monarch_job RUNNING"]
    client.kill()
    client.communicate()
    assert active(slurm) == ["monarch_job RUNNING"], (
        "it was saved, and is another program's as well"
    )
    slurm.revive_node("n1")
    said = home.run(SERVICE, env={"MONARCH_FAULT_GRACE": "1s"})
    assert "the job of" in said and "has ended; starting a new one" in said
    assert "['n0', 'n1', 'n2']" in said
    assert "ended: SlurmJob" in home.monarch("kill")


SCALED = (
    USE
    + """
    import logging
    job = SlurmJob({"hosts": 1, "others": 1}, exclusive=False, cpus_per_task=4)
    first = job.state()
    procs = first.hosts.spawn_procs()
    worker = procs.spawn("worker", Worker)
    print(ask(first.hosts), ask(first.others), flush=True)
    job.scale(hosts=2)
    print(ask(job.state().hosts), worker.node.call_one().get(), flush=True)
    sys.stdin.readline()  # the new host is lost meanwhile
    job.scale(replace_lost=True)
    print(ask(job.state().hosts), worker.node.call_one().get(), flush=True)
    sys.stdin.readline()
    try:
        job.scale(hosts=9)
    except Exception as error:
        print(error, flush=True)
    procs.stop().get()
    """
)


def test_hosts_are_added_replaced_and_given_back_while_the_rest_goes_on(
    home: Home, slurm: Slurm
) -> None:
    client = home.popen([home.program(SCALED)], {}, subprocess.PIPE)
    assert client.stdin is not None and client.stdout is not None
    assert client.stdout.readline() == "['n0'] ['n1']\n"
    assert client.stdout.readline() == "['n0', 'n2'] n0\n"
    slurm.ask(
        "scancel", "--signal=KILL", max(slurm.ask("squeue", "-h", "-o", "%i").split(), key=int)
    )
    wait_until(lambda: workers_of(home, "n2") == [], what="the end of the worker")
    print(file=client.stdin, flush=True)
    assert client.stdout.readline() == "['n0', 'n2'] n0\n"
    print(file=client.stdin, flush=True)
    said, told = client.communicate(timeout=60)
    assert "sbatch --test-only: allocation failure" in said and client.returncode == 0, told
    assert "host 1 of mesh 'hosts' was lost; another takes its place" in told
    home.run("from monarch.job import job_load; job_load().scale(hosts=1)")
    wait_until(
        lambda: active(slurm) == ["monarch_job RUNNING"], what="the end of the job that was added"
    )
    home.monarch("kill")
    home.wait_nothing_left()
    assert active(slurm) == []


def test_nodes_of_the_first_job_are_given_back_when_a_mesh_shrinks(
    home: Home, slurm: Slurm
) -> None:
    said = home.run(
        USE
        + """
    job = SlurmJob({"hosts": 2, "others": 1}, exclusive=False)
    job.state()
    job.scale(hosts=1)
    state = job.state()
    print(ask(state.hosts), ask(state.others))
    """
    )
    assert said == "['n0'] ['n2']\n"
    assert slurm.ask("squeue", "-h", "-t", "RUNNING", "-o", "%D %N").split() == ["2", "n[0,2]"]
    home.monarch("kill")


def test_a_job_that_no_client_uses_ends_by_itself(home: Home, slurm: Slurm) -> None:
    home.run("""
        from monarch.job import SlurmJob
        SlurmJob({"hosts": 1}, exclusive=False, idle_limit=2).state().hosts.initialized.get()
        """)
    wait_until(lambda: active(slurm) == [], what="the end of the job")


def test_a_job_that_is_not_saved_ends_with_its_program(home: Home, slurm: Slurm) -> None:
    home.run("from monarch.job import SlurmJob; SlurmJob({'hosts': 1}).state(cached_path=None)")
    assert active(slurm) == []


def test_meshes_have_resources_of_their_own_and_options_reach_slurm_whole(
    home: Home, slurm: Slurm
) -> None:
    said = home.run(
        USE
        + """
    job = SlurmJob(
        {"trainers": 1}, exclusive=False, gpus_per_node=2, slurm_args=["--comment", "two words#3"],
        setup=["export GREETING='good morning'"], srun_args=["--time=5"], log_dir="out",
    )
    job.add_mesh("generators", 1, gpus_per_node=None, cpus_per_task=2)
    state = job.state()
    names = "SLURMD_NODENAME", "CUDA_VISIBLE_DEVICES", "GREETING", "SLURM_CPUS_ON_NODE"
    print(ask(state.trainers, *names), ask(state.generators, *names))
    """
    )
    trainers, generators = said.strip().split("] [")
    assert "'0,1', 'good morning', '1'" in trainers
    assert "'', 'good morning', '2'" in generators
    assert "Comment=two words#3" in slurm.ask("scontrol", "-o", "show", "job")
    assert sorted(path.name.split("_", 2)[2] for path in (home.folder / "out").iterdir()) == [
        "generators_0.log",
        "monarch_job.err",
        "monarch_job.out",
        "trainers_0.log",
    ]
    home.monarch("kill")


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (
            "SlurmJob({'hosts': 9})",
            "sbatch --test-only: allocation failure: Requested node configuration is not available",
        ),
        ("SlurmJob({'hosts': 1}, partition='nowhere')", "invalid partition specified: nowhere"),
        (
            "SlurmJob({'hosts': 1}, slurm_args=['--no-such-thing'])",
            "unrecognized option '--no-such-thing'",
        ),
        ("SlurmJob({'hosts': 1}, allocation=4711)", "Invalid job id"),
        ("SlurmJob({'hosts': 1}, allocation='current')", "this program runs in no Slurm job"),
    ],
)
def test_what_slurm_refuses_is_an_error_in_its_words(
    home: Home, slurm: Slurm, job: str, why: str
) -> None:
    said = home.run(f"from monarch.job import SlurmJob; {job}.state()", exit_code=1)
    assert why in said.splitlines()[-1]
    assert [*(home.folder / ".monarch" / "slurm").iterdir()] == []


def test_without_slurm_the_error_says_so(home: Home) -> None:
    said = home.run(
        "from monarch.job import SlurmJob; SlurmJob({'a': 1}).state()",
        env={"PATH": "/nowhere"},
        exit_code=1,
    )
    assert "there is no sbatch on the PATH of this machine" in said.splitlines()[-1]


def test_workers_that_do_not_come_up_are_an_error_with_what_they_printed(
    home: Home, slurm: Slurm
) -> None:
    said = home.run(
        "from monarch.job import SlurmJob; SlurmJob({'hosts': 2}, python_exe='/no/python').state()",
        exit_code=1,
    )
    assert "has no workers" in said and "/no/python" in said


def test_a_job_that_waits_says_why_and_is_cancelled_after_its_time(
    home: Home, slurm: Slurm
) -> None:
    slurm.ask(
        "sbatch",
        "--job-name=other",
        "--exclusive",
        "-N3",
        "--wrap",
        "sleep 600",
        "--output=/dev/null",
    )
    said = home.run(
        """
        from monarch.job import SlurmJob
        from monarch.job.base import waiting
        waiting._LINES_AFTER = 0.0
        SlurmJob({"hosts": 1}, job_start_timeout=1.5).state()
        """,
        exit_code=1,
    )
    assert "PENDING (" in said.splitlines()[0]
    assert (
        "1 of 1 workers did not run within 1.5 s (job_start_timeout); it was PENDING ("
        in said.splitlines()[-1]
    )
    assert active(slurm) == ["other RUNNING"]
    slurm.ask("scancel", "--name=other")


def test_the_nodes_of_a_running_allocation_are_used_and_given_back(
    home: Home, slurm: Slurm
) -> None:
    program = home.program(
        USE
        + """
    job = SlurmJob({"a": 1, "b": 2}, allocation="current")
    state = job.state()
    print(ask(state.a), ask(state.b))
    from helpers.waiting import wait_until
    from monarch.job.base.contract import unreachable
    gone = job._reported()["b", 1]
    job.scale(b=1)
    wait_until(lambda: unreachable([gone]), what="the end of the worker")
    state = job.state()
    print(ask(state.a), ask(state.b))
    job.kill()
    """
    )
    said = subprocess.run(
        ["salloc", "-N3", "sh", "-c", f"{sys.executable} {program}; squeue -h --steps"],
        cwd=home.folder,
        env=home.environment({}),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert said.stdout == "['n0'] ['n1', 'n2']\n['n0'] ['n1']\n"


def test_a_job_in_an_allocation_is_ended_while_its_setup_still_runs(
    home: Home, slurm: Slurm
) -> None:
    program = home.program("""
        from pathlib import Path
        from helpers.waiting import wait_until
        from monarch.job import SlurmJob

        job = SlurmJob({"a": 1}, allocation="current", setup=["touch begun", "sleep 1000", "touch went_on"])
        job.apply()
        wait_until(Path("begun").exists, what="the setup")
        job.kill()
        """)
    subprocess.run(
        ["salloc", "-N1", sys.executable, program],
        cwd=home.folder,
        env=home.environment({}),
        timeout=60,
        check=True,
    )
    home.wait_nothing_left()
    assert not (home.folder / "went_on").exists()


WARNINGS = {
    "signal": ["scancel", "--batch", "--signal=TERM", "--name=monarch_job"],
    "preemption": [
        "sbatch",
        "--partition=high",
        "--exclusive",
        "--nodes=3",
        "--wrap=true",
        "--output=/dev/null",
    ],
}


@pytest.mark.parametrize("warning", WARNINGS.values(), ids=WARNINGS)
def test_a_script_runs_as_part_of_the_job_and_its_status_is_that_of_the_job(
    home: Home, slurm: Slurm, warning: list[str]
) -> None:
    (home.folder / "train.py").write_text(
        textwrap.dedent(USE)
        + textwrap.dedent("""
            import signal
            def warned(*_):
                print("warned by Slurm", flush=True)
                sys.exit(3)
            signal.signal(signal.SIGTERM, warned)
            print(sys.argv[1:], ask(SlurmJob({"not": 5}).state().hosts), flush=True)
            signal.pause()
            """)
    )
    home.run(f"""
        from monarch.job import SlurmJob
        job = SlurmJob({{"hosts": 2}}, exclusive=False, log_dir="out", partition="low")
        job.apply(client_script="{sys.executable} train.py --steps 7")
        """)

    def output() -> str:
        return "".join(path.read_text() for path in home.folder.glob("out/*monarch_job.*"))

    wait_until(lambda: "['--steps', '7'] ['n0', 'n1']" in output(), what="the script")
    slurm.ask(*warning)
    wait_until(lambda: active(slurm) == [], what="the end of the job")
    assert "warned by Slurm" in output()
    assert "ExitCode=3:0" in slurm.ask("scontrol", "-o", "show", "job")


def test_a_job_that_slurm_has_requeued_is_used_again(home: Home, slurm: Slurm) -> None:
    one = TWO_MESHES.replace('{"trainers": 2, "generators": 1}', '{"trainers": 1, "generators": 1}')
    first = home.run(one)
    job = slurm.ask("squeue", "-h", "-o", "%i").strip()
    slurm.ask("scontrol", "requeue", job)
    wait_until(
        lambda: active(slurm) == ["monarch_job PENDING"],
        what="the job to wait again",
        interval=0.05,
    )
    wait_until(
        lambda: "comp" not in slurm.ask("sinfo", "-h", "-o", "%T"),
        what="the nodes to be done with its first run",
    )
    told = home.monarch("status", exit_code=1)  # at once, as Slurm knows it
    assert " waits for its hosts; context 'default'" in told and " runs;" not in told
    assert re.search(rf"^Slurm job {job}: PENDING \(\w+\), estimated start 20", told, re.MULTILINE)
    # Slurm lets it wait for two minutes; in the second in which it has ended the first run, nodes
    # would refuse another one, as "Job credential revoked", and the job would be FAILED
    slurm.ask("scontrol", "update", f"jobid={job}", "starttime=now+2")
    again = home.run(one, "kill")
    said = "".join(path.read_text() for path in home.folder.glob(".monarch/logs/*/workers/*"))
    assert again.split()[-1] == first.split()[-1], said


def test_a_warning_of_slurm_reaches_the_program_while_its_hosts_still_run(
    home: Home, slurm: Slurm
) -> None:
    said = home.run(
        USE
        + """
    import subprocess, threading
    job = SlurmJob({"hosts": 1}, exclusive=False)
    warned = threading.Event()
    job.on_warning(warned.set)
    hosts = job.state().hosts
    subprocess.run(["scancel", "--batch", "--signal=TERM", job._job_id], check=True)  # as --signal=B:TERM@300 has Slurm do
    print(warned.wait(30), ask(hosts))
    job.kill()
    """
    )
    assert said.startswith("True ['n0']\n")
    assert "Slurm will end job" in said


def test_the_end_of_a_job_is_told_as_that_of_slurm(home: Home, slurm: Slurm) -> None:
    said = home.run(
        USE
        + """
    import subprocess, time
    job = SlurmJob({"hosts": 1}, exclusive=False)
    workers = job.state().hosts.spawn_procs().spawn("worker", Worker)
    workers.node.call().get()
    subprocess.run(["scancel", job._job_id], check=True)
    time.sleep(600)
    """,
        exit_code=1,
    )
    assert re.search(r"Slurm ended job \d+: (CANCELLED|COMPLETING)", said), said
    assert "which started this host's agent" not in said


def test_a_preemption_reaches_the_program_but_not_what_it_has_given_back(
    home: Home, slurm: Slurm
) -> None:
    said = home.run(
        USE
        + """
    import subprocess, threading
    job = SlurmJob({"hosts": 1}, exclusive=False, cpus_per_task=4, partition="low")
    warned = threading.Event()
    job.on_warning(warned.set)
    job.state()
    job.scale(hosts=2)
    job.state()
    job.scale(hosts=1)
    while len(subprocess.run(["squeue", "-h"], stdout=subprocess.PIPE, check=True).stdout.splitlines()) > 1:
        pass
    print("given back", warned.wait(2.5))
    job.scale(hosts=2)
    with job.state().hosts.spawn_procs() as procs:
        worker = procs.spawn("worker", Worker)
        print(worker.node.call().get().values())
        subprocess.run(["sbatch", "-p", "high", "--exclusive", "-N3", "--wrap", "true", "--output=/dev/null"], check=True)
        print(warned.wait(60), worker.node.call().get().values())
    job.kill()
    """
    )
    assert said.startswith("given back False\n['n0', 'n1']\n") and "True ['n0', 'n1']\n" in said
    wait_until(lambda: active(slurm) == [], what="the end of the job that was let in")


def test_a_client_outside_of_the_cluster_reaches_all_nodes_through_the_first(
    home: Home, slurm: Slurm
) -> None:
    said = home.run(
        USE
        + """
    job = SlurmJob({"hosts": 2}, exclusive=False, out_of_cluster=True, bind_to="127.0.0.1")
    hosts = job.state().hosts
    print(ask(hosts))
    job.kill()
    """
    )
    assert said == "['n0', 'n1']\n"


def test_the_example_trains_on_nodes_of_slurm(home: Home, slurm: Slurm) -> None:
    example = Path(__file__).parents[2] / "examples" / "slurm_ddp.py"
    # else it stays in the folder for temporary files
    torch = {"TORCHINDUCTOR_CACHE_DIR": str(home.folder / "torch")}
    assert "2 ranks, loss of each: 0.0" in home.finish(home.popen([str(example), "1"], torch), 0)
    home.monarch("kill")
