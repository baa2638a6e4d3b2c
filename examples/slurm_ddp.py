"""`DistributedDataParallel` on nodes of Slurm.

Run it on a login node, or within `salloc`; without Slurm it says what it needs.

    python examples/slurm_ddp.py                  2 nodes, 2 processes on each, on CPUs
    python examples/slurm_ddp.py 4 8              4 nodes with 8 GPUs each

The folder that you run it in must be one that the nodes see, too. The job stays for the next run,
which starts at once; it ends after ten minutes without one, or by ``monarch kill``.

What to look for:

* ``SlurmJob({"trainers": 4}, ...)``   the nodes; ``state()`` submits the job, waits, and shows why while it is pending
* ``spawn_procs({"gpus": 8})``         the processes on each; they get the variables that torchrun would set
* ``trainers.train.call(...)``         a rank that fails, or a node that is lost, is an error here, not a hang
"""

import shutil
import subprocess
import sys

from monarch.actor import Actor, HostMesh, endpoint
from monarch.job import SlurmJob
from monarch.spmd import setup_torch_elastic_env


# region job
def trainers_on_slurm(nodes: int, gpus: int) -> HostMesh:
    job = SlurmJob(
        {"trainers": nodes},
        gpus_per_node=gpus or None,
        exclusive=gpus > 0,
        time_limit="1:00:00",
        idle_limit=600,  # seconds without a client, after which the nodes are given back
        # imported once for each node, not by each rank
        setup=["export MONARCH_PRELOAD=torch,torch._dynamo"],
        # partition="gpu", account="me", slurm_args=["--constraint=h100"],
        # srun_args=["--container-image=..."]
    )
    return job.state().trainers


# endregion


# region trainer
class Trainer(Actor):
    def __init__(self, backend: str) -> None:
        import torch.distributed as dist

        # finds the others by the variables that torchrun would set
        dist.init_process_group(backend)

    @endpoint
    def train(self, steps: int) -> float:
        import os

        import torch
        from torch.nn.parallel import DistributedDataParallel

        local = int(os.environ["LOCAL_RANK"])
        device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(4, 1).to(device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        # each rank has data of its own
        generator = torch.Generator().manual_seed(int(os.environ["RANK"]))
        for _ in range(steps):
            inputs = torch.randn(16, 4, generator=generator).to(device)
            loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()  # averages the gradients of all ranks
            optimizer.step()
        return float(loss.item())


# endregion


# region main
def main(nodes: int = 2, gpus: int = 0) -> None:
    procs = trainers_on_slurm(nodes, gpus).spawn_procs({"gpus": gpus or 2})
    setup_torch_elastic_env(procs)
    trainers = procs.spawn("trainers", Trainer, "nccl" if gpus else "gloo")
    losses = trainers.train.call(steps=60).get()
    print(
        f"{len(losses)} ranks, loss of each:", ", ".join(f"{loss:.4f}" for loss in losses.values())
    )
    procs.stop().get()


# endregion

if __name__ == "__main__":
    if shutil.which("sinfo") is None or subprocess.run(["sinfo"], capture_output=True).returncode:
        print("needs Slurm: run it on a machine where `sinfo` shows nodes")
    else:
        main(*map(int, sys.argv[1:]))
