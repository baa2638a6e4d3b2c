"""The example of reinforcement learning on hosts of ssh, Slurm and Kubernetes, without a change."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from helpers.jobs import Home
    from helpers.kubernetes import Kubernetes
    from helpers.slurm import Slurm
    from helpers.ssh import Ssh

LIMIT = 600.0  # seconds
pytest.importorskip("torch")
pytestmark = [
    pytest.mark.processes("a program of its own, on hosts of a job"),
    pytest.mark.slow,
    pytest.mark.torch,
    pytest.mark.timeout(LIMIT),
]
ROOT = Path(__file__).parents[2]
# in a pod, the account that says where the cluster is
RUN = """
    import os
    from pathlib import Path
    from monarch.job.kubernetes import config as kubernetes_config
    if "ACCOUNT" in os.environ:
        kubernetes_config.ACCOUNT = Path(os.environ["ACCOUNT"])
    from examples.rl.run import main
    if __name__ == "__main__":
        main()
"""


def run(home: Home, *options: str, **env: str) -> None:
    """Run a few steps, and end the job: hosts of a scheduler stay for the next run."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    # torch makes that folder among temporary files, and leaves it there
    env |= {"PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(home.folder / "inductor")}
    program = home.start(RUN, "--steps", "few", "--imitation", "5", *options, env=env)
    try:  # each of its processes imports torch first
        said, told = program.communicate(timeout=LIMIT / 2)
    finally:
        program.kill()
    assert program.returncode == 0, said + told
    assert re.findall(r"^ *(\d) +\d+% ", said, re.MULTILINE) == ["0", "1", "2", "3"], said
    end = RUN.partition("    from examples")[0] + "    from monarch.job import job_load\n"
    home.run(end + "    job_load().kill()\n", env=env)


def test_trainers_and_generators_are_on_machines_that_ssh_reaches(home: Home, ssh: Ssh) -> None:
    run(home, "--hosts", "ssh", "--nodes", "a,b", f"--ssh-args=-F {ssh.config}")
    ssh.wait_nothing_left()


def test_trainers_and_generators_are_on_nodes_of_slurm(home: Home, slurm: Slurm) -> None:
    run(home, "--hosts", "slurm")


def test_trainers_and_generators_are_in_pods(home: Home, kubernetes: Kubernetes) -> None:
    where = {
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(kubernetes.port),
        "ACCOUNT": str(kubernetes.folder),
    }
    options = ("--hosts", "kubernetes", "--image", "ours:1", "--namespace", "tests")
    run(home, *options, **where)
    assert [key for key in kubernetes.objects if key[0] != "events"] == []
