"""Actors of a mesh with a process group; torch is imported once, before the ranks are forked."""

import sys

from benchmarks.end_to_end.programs import training
from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure
from monarch.spmd import setup_torch_elastic_env


class Trainer(Actor):
    @endpoint
    def first_step(self) -> None:
        training.first_step()


if __name__ == "__main__":
    configure(preload=["torch", "torch._dynamo"])
    procs = this_host().spawn_procs({"gpus": int(sys.argv[1])})
    setup_torch_elastic_env(procs)
    procs.spawn("trainers", Trainer).first_step.call().get()
    print("first step", flush=True)
