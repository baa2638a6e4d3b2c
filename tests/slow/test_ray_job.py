"""Jobs on a real Ray cluster of four nodes: found again by the next run, gone when they are not
wanted any more.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.effort import IN_CI
from helpers.ray_cluster import Ray, running_ray
from helpers.slurm import command_of
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from helpers.jobs import Home

pytestmark = [
    pytest.mark.timeout(300),
    # looked for, not imported: this process has no use for it
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason="ray is not installed: pip install 'pymonarch[ray]'",
    ),
]

at_a_desk = pytest.mark.skipif(IN_CI, reason="CI takes the shorter part of these tests")

USE = """
    import os, sys
    from monarch.actor import Actor, endpoint
    from monarch.job import RayJob

    class Worker(Actor):
        @endpoint
        def where(self) -> tuple[str, int]:
            return os.environ.get("GREETING", ""), os.getppid()

    def ask(hosts):
        with hosts.spawn_procs() as procs:
            return procs.spawn("worker", Worker).where.call().get().values()

    ADDRESS = os.environ["TEST_RAY"]
"""
TWO_MESHES = (
    USE
    + """
    if __name__ == "__main__":
        job = RayJob({"trainers": 2, "generators": 1}, address=ADDRESS, env={"GREETING": "hi"})
        state = job.state()
        print(ask(state.trainers), ask(state.generators), job.apply_id, flush=True)
        if "kill" in sys.argv:
            job.kill()
"""
)
SERVICE = (
    USE
    + """
    import monarch.actor
    monarch.actor.unhandled_fault_hook = lambda failure: None
    job = RayJob({"hosts": 2}, address=ADDRESS, cpus_per_host=2)
    hosts = job.state().hosts
    print(len(ask(hosts)), flush=True)
    for line in sys.stdin:
        try:
            eval(line)
            print(len({pid for _, pid in ask(job.state().hosts)}), flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
"""
)


@pytest.fixture(scope="module")
def ray_of_module() -> Iterator[Ray]:
    with running_ray() as ray:
        yield ray


@pytest.fixture
def ray(ray_of_module: Ray, home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ray]:
    """A cluster in which a test leaves nothing."""
    monkeypatch.setenv("TEST_RAY", ray_of_module.address)
    yield ray_of_module
    home.wait_nothing_left()
    wait_until(lambda: not ray_of_module.workers(), what="the end of the workers", timeout=60)


def agents(ray: Ray) -> list[int]:
    return sorted(pid for pid in ray.workers() if "worker_main" in command_of(pid))


def test_two_meshes_on_nodes_of_ray_are_used_found_again_and_ended(home: Home, ray: Ray) -> None:
    first, *_ = home.run(TWO_MESHES).splitlines()  # others say that it waits, on a busy machine
    assert first.count("('hi', ") == 3
    assert home.run(TWO_MESHES, "kill").splitlines()[0] == first
    wait_until(lambda: not ray.workers(), what="the end of the workers")
    assert not (home.folder / ".monarch" / "job_state.pkl").exists()
    assert [*(home.folder / ".monarch" / "ray").iterdir()] == []


def test_a_job_is_scaled_and_outlives_its_client_and_its_workers(home: Home, ray: Ray) -> None:
    client = home.popen([home.program(SERVICE)], {"MONARCH_FAULT_GRACE": "600s"}, subprocess.PIPE)
    assert client.stdin is not None and client.stdout is not None
    assert client.stdout.readline() == "2\n"
    print("job.scale(hosts=3)", file=client.stdin, flush=True)
    assert client.stdout.readline() == "3\n"
    print("job.scale(hosts=1)", file=client.stdin, flush=True)
    assert client.stdout.readline() == "1\n"
    client.kill()
    client.communicate()
    (worker,) = agents(ray)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not agents(ray), what="the end of the worker")
    home.run("from monarch.job import job_load; job_load().kill()")


def test_a_job_that_is_not_saved_ends_with_its_program(home: Home, ray: Ray) -> None:
    home.run(
        USE + "    RayJob({'hosts': 1},"
        " address=ADDRESS).state(cached_path=None).hosts.initialized.get()"
    )
    wait_until(lambda: not ray.workers(), what="the end of the worker")


@at_a_desk
def test_a_job_that_no_client_uses_ends_by_itself_and_gives_its_resources_back(
    home: Home, ray: Ray
) -> None:
    whole = (
        USE + "    RayJob({'hosts': 4}, address=ADDRESS, cpus_per_host=2, idle_limit=LIMIT).state()"
    )
    # it has to attach within that time, too
    home.run(whole.replace("LIMIT", "12") + ".hosts.initialized.get()")
    wait_until(lambda: not ray.workers(), what="the end of the workers", timeout=60)
    home.run(whole.replace("LIMIT", "60") + ".hosts.initialized.get()")
    home.monarch("kill")


@at_a_desk
def test_what_can_not_be_is_an_error_that_says_why(home: Home, ray: Ray) -> None:
    late = USE + "    RayJob({'hosts': 9}, address=ADDRESS, job_start_timeout=1).state()"
    said = home.run(late, exit_code=1).splitlines()[-1]
    assert (
        "each needs a node with {'CPU': 1}, and 4 nodes have that; the job was ended after 1 s"
        in said
    )
    said = home.run(
        USE + "    RayJob({'hosts': 1}, env={'PYTHONHOME': '/no'}, address=ADDRESS).state()",
        exit_code=1,
    )
    assert "1 of its hosts did not come up: hosts[0]: " in said.splitlines()[-1]


def test_a_lost_node_is_replaced_while_the_rest_goes_on(home: Home, ray: Ray) -> None:
    client = home.popen(
        [home.program(SERVICE.replace('"hosts": 2', '"hosts": 3'))], {}, subprocess.PIPE
    )
    assert client.stdin is not None and client.stdout is not None
    assert client.stdout.readline() == "3\n"
    before = set(agents(ray))
    ray.kill_busy_node()
    wait_until(lambda: len(before & set(agents(ray))) == 2, what="the end of a worker")
    kept = before & set(agents(ray))
    print("job.scale(replace_lost=True)", file=client.stdin, flush=True)
    assert client.stdout.readline() == "3\n"
    assert kept < set(agents(ray))
    client.communicate(timeout=60)
    home.monarch("kill")


@at_a_desk
def test_the_end_of_hosts_is_told_as_ray_tells_it(home: Home, ray: Ray) -> None:
    program = """
    import time
    if __name__ == "__main__":
        hosts = RayJob({"trainers": 2}, address=ADDRESS, cpus_per_host=2).state(cached_path=None).trainers
        worker = hosts.spawn_procs(restart=None).spawn("worker", Worker)
        print(len(worker.where.call().get().values()), flush=True)
        time.sleep(600)
    """
    client = home.popen([home.program(USE + program)], {}, subprocess.PIPE)
    assert client.stdout is not None
    assert client.stdout.readline() == "2\n"
    ray.kill_busy_node()
    said = client.communicate()[1]
    assert re.search(r"Ray at \S+: trainers\[\d\]: The actor .* node", said), said
    assert "which started this host's agent" not in said


def test_the_example_runs_on_nodes_of_ray(home: Home, ray: Ray) -> None:
    example = Path(__file__).parents[2] / "examples" / "ray_hosts.py"
    env = {
        "RAY_ADDRESS": ray.address,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    said = home.finish(home.popen([str(example), "2"], env), 0)
    assert said.count(f"{os.uname().nodename}, GPUs none") == 4, said
    home.monarch("kill")
