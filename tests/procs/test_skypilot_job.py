"""Jobs of SkyPilot, with a `sky` that starts what it is told on addresses of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.jobs import Home

SKY = '''
    """As much of SkyPilot as a job uses, as its release 0.14 has it: requests by id, tasks, clusters as records."""
    import json, os, signal, subprocess, threading
    from pathlib import Path
    from types import SimpleNamespace as Record

    CLUSTERS = Path(__file__).parent / "clusters.json"

    def _read():
        return json.loads(CLUSTERS.read_text()) if CLUSTERS.exists() else {}

    class Resources:
        def __init__(self, infra=None):
            self.infra = infra

    class Task:
        def __init__(self, name, run, setup, num_nodes, envs, workdir, secrets=None):
            assert "MONARCH_SECRET" in secrets and "MONARCH_SECRET" not in envs  # which are shown to others
            self.run, self.num_nodes, self.envs, self.setup = run, num_nodes, {**envs, **secrets}, setup
        def set_resources(self, resources):
            assert isinstance(resources, Resources)
            self.resources = resources

    def launch(task, cluster_name, idle_minutes_to_autostop, down):
        if task.resources.infra == "nowhere":
            return "refused"
        if task.resources.infra == "slow":
            CLUSTERS.write_text(json.dumps({**_read(), cluster_name: [[], []]}))
            return "wait " + cluster_name
        ips = [f"127.0.0.{2 + rank}" for rank in range(task.num_nodes)]
        nodes = []
        for rank, ip in enumerate(ips):
            # a node of a cloud has one address, where this machine has many
            run = task.run.replace('echo "$SKYPILOT_NODE_IPS"', f"echo {ip}").replace("tcp://:", f"tcp://{ip}:")
            env = {**os.environ, **task.envs, "SKYPILOT_NODE_RANK": str(rank), "SKYPILOT_NODE_IPS": "\\n".join(ips)}
            nodes.append(subprocess.Popen(["bash", "-c", run], env=env, start_new_session=True,
                                          stdin=-3, stdout=-3, stderr=-3).pid)
        CLUSTERS.write_text(json.dumps({**_read(), cluster_name: [nodes, ips]}))
        return "launch " + cluster_name

    def status(cluster_names):
        return "status " + cluster_names[0]

    def down(cluster):
        return "down " + cluster

    def job_status(cluster, numbers):
        return "job " + cluster

    def get(request):
        verb, _, cluster = request.partition(" ")
        clusters = _read()
        if verb == "refused":
            raise RuntimeError("No cloud has that.\\nTry another one.")
        if verb == "wait":
            threading.Event().wait()
        nodes, ips = clusters.get(cluster, ([], []))
        if verb == "launch":
            return 1, Record(internal_ips=lambda: ips)
        if verb == "status":
            return [{"status": Record(name="UP")}] if cluster in clusters else []
        if verb == "job":
            lives = all(Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes() for pid in nodes)
            return {1: Record(name="RUNNING" if lives else "FAILED")}
        for pid in nodes:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        CLUSTERS.write_text(json.dumps({name: rest for name, rest in clusters.items() if name != cluster}))
'''
USE = """
    import os, sys
    from monarch.actor import Actor, endpoint
    from monarch.job.skypilot import SkyPilotJob

    class Worker(Actor):
        @endpoint
        def rank(self) -> str:
            return os.environ["SKYPILOT_NODE_RANK"]

    def ask(hosts):
        with hosts.spawn_procs() as procs:
            return procs.spawn("worker", Worker).rank.call().get().values()

    PORT = int(os.environ["TEST_PORT"])
"""
TWO_MESHES = (
    USE
    + """
    job = SkyPilotJob({"trainers": 2, "generators": 1}, {"infra": "aws"}, monarch_port=PORT, python_exe=sys.executable)
    state = job.state()
    print(ask(state.trainers), ask(state.generators), job.apply_id)
    if "kill" in sys.argv:
        job.kill()
"""
)


@pytest.fixture
def sky(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from helpers.workers import free_ports

    home.program(SKY)
    (home.folder / "program.py").rename(home.folder / "sky.py")
    monkeypatch.setenv("TEST_PORT", str(free_ports(1)[0]))


@pytest.mark.usefixtures("sky")
def test_nodes_of_a_cluster_are_dealt_to_meshes_found_again_and_removed(home: Home) -> None:
    first = home.run(TWO_MESHES)
    assert first.startswith("['0', '1'] ['2'] ")
    assert home.run(TWO_MESHES, "kill") == first
    home.wait_nothing_left()
    assert (home.folder / "clusters.json").read_text() == "{}"


@pytest.mark.usefixtures("sky")
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("{'infra': 'nowhere'}", "has not started cluster monarch-"),
        (
            "{'infra': 'aws'}, python_exe='/no/python'",
            "1 of 1 workers can't be reached: their job is FAILED; `sky logs monarch-",
        ),
    ],
)
def test_a_cluster_that_does_not_come_up_is_an_error_that_says_why(
    home: Home, arguments: str, why: str
) -> None:
    said = home.run(
        USE
        + f"""
    from monarch.job import skypilot
    skypilot._ASK = 0.1
    SkyPilotJob({{"a": 1}}, {arguments}, monarch_port=PORT).state()
    """,
        exit_code=1,
    )
    assert why in said.splitlines()[-1]
    home.run("from monarch.job import job_load; job_load().kill()")


@pytest.mark.usefixtures("sky")
def test_a_cluster_that_is_not_provisioned_in_time_is_removed(home: Home) -> None:
    slow = (
        "SkyPilotJob({'a': 1}, {'infra': 'slow'}, monarch_port=PORT, job_start_timeout=0.5).state()"
    )
    said = home.run(USE + "\n    " + slow, exit_code=1)
    assert (
        "was not there within 0.5 s (job_start_timeout), and was removed" in said.splitlines()[-1]
    )
    assert (home.folder / "clusters.json").read_text() == "{}"
    assert not (home.folder / ".monarch" / "job_state.pkl").exists()


@pytest.mark.usefixtures("sky")
def test_a_description_that_skypilot_refuses_leaves_no_secret(home: Home) -> None:
    said = home.run(USE + "\n    SkyPilotJob({'a': 1}, {'nonsense': 1}).state()", exit_code=1)
    assert "nonsense" in said.splitlines()[-1]
    assert list((home.folder / ".monarch" / "skypilot").iterdir()) == []


def test_without_skypilot_the_error_says_what_to_install(home: Home) -> None:
    said = home.run(
        "from monarch.job.skypilot import SkyPilotJob; SkyPilotJob({'a': 1}).state()", exit_code=1
    )
    assert said.splitlines()[-1].endswith("pip install 'pymonarch[skypilot]'")
