"""Jobs on a Kubernetes whose nodes run real workers: hosts that are pods, found again, replaced, and gone when they are not wanted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from helpers.kubernetes import NAMESPACE, TOKEN
from helpers.slurm import command_of
from helpers.waiting import wait_until

if TYPE_CHECKING:
    from helpers.jobs import Home
    from helpers.kubernetes import Kubernetes

USE = """
    import os, sys
    from pathlib import Path
    from monarch.actor import Actor, endpoint
    from monarch.job import kubernetes_config
    from monarch.job.kubernetes import ImageSpec, KubeConfig, KubernetesJob

    kubernetes_config.ACCOUNT = Path(os.environ["ACCOUNT"])

    class Worker(Actor):
        @endpoint
        def pod(self) -> str:
            return os.environ["HOSTNAME"]

    def ask(hosts):
        with hosts.spawn_procs() as procs:
            return procs.spawn("worker", Worker).pod.call().get(timeout=30).values()
"""
TWO_MESHES = (
    USE
    + """
    if __name__ == "__main__":
        job = KubernetesJob("tests", controller=os.environ.get("CONTROLLER", "MonarchMesh"))
        job.add_mesh("trainers", 2, image_spec=ImageSpec("ours:1"))
        job.add_mesh("generators", 1, image_spec=ImageSpec("ours:1"))
        state = job.state()
        print(ask(state.trainers), ask(state.generators), job.apply_id, flush=True)
        if "kill" in sys.argv:
            job.kill()
"""
)


def in_cluster(kubernetes: Kubernetes, **more: str) -> dict[str, str]:
    """The environment of a program in a pod."""
    where = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(kubernetes.port)}
    return {**where, "ACCOUNT": str(kubernetes.folder), **more}


@pytest.mark.parametrize(
    ("controller", "trainers"),
    [
        ("MonarchMesh", "['trainers-0', 'trainers-1'] ['generators-0'] "),
        ("StatefulSet", "['trainers-0', 'trainers-1'] ['generators-0'] "),
        ("Job", "['trainers-0-x', 'trainers-1-x'] ['generators-0-x'] "),
    ],
)
def test_two_meshes_are_used_found_again_and_ended(
    home: Home, kubernetes: Kubernetes, controller: str, trainers: str
) -> None:
    env = in_cluster(kubernetes, CONTROLLER=controller)
    first = home.run(TWO_MESHES, env=env)
    assert first.startswith(trainers)
    assert home.run(TWO_MESHES, "kill", env=env) == first
    assert [key for key in kubernetes.objects if key[0] != "events"] == []
    assert kubernetes.processes() == []
    home.wait_nothing_left()
    assert not (home.folder / ".monarch" / "job_state.pkl").exists()
