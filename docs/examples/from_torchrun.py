"""A script for torchrun as an actor. The script is docs/examples/others/torchrun_train.py."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure
from monarch.spmd import setup_torch_elastic_env


# region actor
class Trainer(Actor):
    def __init__(self) -> None:
        torch.set_num_threads(1)  # torchrun sets OMP_NUM_THREADS=1
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.generator = torch.Generator().manual_seed(dist.get_rank())

    @endpoint
    def train(self, steps: int) -> float:
        for _ in range(steps):
            inputs = torch.randn(16, 4, generator=self.generator)
            loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return float(loss.item())

    def __cleanup__(self, error: Exception | None) -> None:
        dist.destroy_process_group()


def main() -> None:
    configure(preload=["torch._dynamo"])
    with this_host().spawn_procs({"gpus": 4}) as procs:
        setup_torch_elastic_env(procs)
        trainers = procs.spawn("trainers", Trainer)
        for step in range(0, 60, 20):
            print(f"step {step}")
            losses = trainers.train.call(steps=20).get()
        print(f"the worst loss is below 0.01: {max(losses.values()) < 0.01}")


# endregion


if __name__ == "__main__":
    main()
