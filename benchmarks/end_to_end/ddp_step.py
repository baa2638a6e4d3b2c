"""A step of `DistributedDataParallel`: a small transformer, gloo, the same function under both
launchers.

The median of a rank's steps, and of ranks the slowest one.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.end_to_end.contenders import OURS, Contender, Quantity, Row, main
from benchmarks.end_to_end.programs.training import milliseconds_a_step
from benchmarks.targets import Target
from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure
from monarch.spmd import setup_torch_elastic_env

TOLD = "a step took "


class Trainer(Actor):
    @endpoint
    def train(self, steps: int) -> float:
        return milliseconds_a_step(steps)


def with_actors(ranks: int, steps: int) -> dict[str, float]:
    configure(preload=["torch", "torch._dynamo"])
    procs = this_host().spawn_procs({"gpus": ranks})
    setup_torch_elastic_env(procs)
    return {"a step": max(procs.spawn("trainers", Trainer).train.call(steps).get().values())}


def with_torchrun(ranks: int, steps: int) -> dict[str, float]:
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
    ]
    program = [*torchrun, "-m", "benchmarks.end_to_end.programs.ddp_step_torchrun", str(steps)]
    said = subprocess.run(program, stdout=subprocess.PIPE, text=True, check=True).stdout
    took = [float(line.removeprefix(TOLD)) for line in said.splitlines() if line.startswith(TOLD)]
    if len(took) != ranks:
        raise RuntimeError(f"{len(took)} of {ranks} ranks have told of their steps")
    return {"a step": max(took)}


ROW = Row(
    name="ddp_step",
    title="A step of DistributedDataParallel, small transformer, gloo",
    contenders={
        OURS: Contender(with_actors, ("torch",)),
        "torchrun": Contender(with_torchrun, ("torch",)),
    },
    quantities={"a step": Quantity("ms", {"torchrun": Target(1 / 1.02, 1)})},
    settings={"ranks": 4, "steps": 60},
)


if __name__ == "__main__":
    main(ROW)
