"""DistributedDataParallel in actors, over a process group of the mesh.

Shown in docs/torch_distributed.md.
"""

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure


# region ddp
class Trainer(Actor):
    @endpoint
    def setup(self, group: Any) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1), process_group=group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    @endpoint
    def train(self, steps: int) -> float:
        for _ in range(steps):
            inputs = torch.randn(16, 4)
            loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return float(loss.item())


def main() -> None:
    configure(preload=["torch._dynamo"])
    procs = this_host().spawn_procs({"replicas": 2, "gpus": 2})
    trainers = procs.spawn("trainers", Trainer)
    with procs.activate() as mesh:
        group = mesh.process_group(("replicas", "gpus"))
        trainers.setup.call(group).get()
    losses = trainers.train.call(steps=50).get()
    print(f"the loss of rank 3 is {losses.item(replicas=1, gpus=1):.3f}")


# endregion

if __name__ == "__main__":
    main()
