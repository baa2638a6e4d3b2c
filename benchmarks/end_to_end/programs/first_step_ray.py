"""Ray's actors, on a Ray that is started for them."""

import importlib
import os
import socket
import sys
from typing import Any

from benchmarks.end_to_end.programs import training

ray: Any = importlib.import_module("ray")


class Trainer:
    def address(self) -> tuple[str, int]:
        with socket.socket() as probe:
            probe.bind(("", 0))
            return "127.0.0.1", probe.getsockname()[1]

    def first_step(self, rank: int, size: int, address: tuple[str, int]) -> None:
        variables = {
            "RANK": rank,
            "WORLD_SIZE": size,
            "MASTER_ADDR": address[0],
            "MASTER_PORT": address[1],
        }
        os.environ.update({name: str(value) for name, value in variables.items()})
        training.first_step()


if __name__ == "__main__":
    size = int(sys.argv[1])
    ray.init(num_cpus=size, include_dashboard=False, logging_level="error", log_to_driver=False)
    actor = ray.remote(num_cpus=1)(Trainer)
    trainers = [actor.remote() for _ in range(size)]
    address = ray.get(trainers[0].address.remote())
    ray.get(
        [trainer.first_step.remote(rank, size, address) for rank, trainer in enumerate(trainers)]
    )
    print("first step", flush=True)
