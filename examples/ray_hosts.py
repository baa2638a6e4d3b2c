"""Actors of Monarch on the nodes of a Ray cluster that runs. Without one it says what it needs.

    ray start --head                      a cluster of one node, to try it
    python examples/ray_hosts.py          one host
    python examples/ray_hosts.py 4 8      four hosts, with 8 GPUs each

The workers stay for the next run, which starts at once; they end after ten minutes without one, or
by ``monarch kill``.

What to look for:

* ``RayJob({"trainers": 4}, ...)``   the hosts: a bundle of resources on a node of its own for each
* ``job.scale(trainers=8)``          more of them, or fewer, while it runs
"""

import importlib.util
import os
import shutil
import subprocess
import sys

from monarch.actor import Actor, HostMesh, endpoint
from monarch.job import RayJob


# region job
def trainers_on_ray(hosts: int, gpus: int) -> HostMesh:
    job = RayJob(
        {"trainers": hosts},
        cpus_per_host=1,
        gpus_per_host=gpus,
        idle_limit=600,  # seconds without a client, after which the resources are given back
        # address="10.0.0.7:6379", runtime_env={"pip": ["pymonarch"]}, env={"NCCL_DEBUG": "WARN"}
    )
    return job.state().trainers


# endregion


class Trainer(Actor):
    @endpoint
    def where(self) -> str:
        return f"{os.uname().nodename}, GPUs {os.environ.get('CUDA_VISIBLE_DEVICES') or 'none'}"


# region main
def main(hosts: int = 1, gpus: int = 0) -> None:
    procs = trainers_on_ray(hosts, gpus).spawn_procs({"gpus": gpus or 2})
    trainers = procs.spawn("trainers", Trainer)
    for point, where in trainers.where.call().get().items():
        print(point, where)
    procs.stop().get()


# endregion


def ray_runs() -> bool:
    if importlib.util.find_spec("ray") is None or shutil.which("ray") is None:
        return False
    return subprocess.run(["ray", "status"], capture_output=True).returncode == 0


if __name__ == "__main__":
    if ray_runs():
        main(*map(int, sys.argv[1:]))
    else:
        print("needs Ray: run it on a machine where `ray status` shows nodes")
