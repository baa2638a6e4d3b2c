"""Tutorial 3: data-parallel training on four ranks, steered by one script."""

# region trainer
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from monarch.actor import Actor, current_rank, endpoint, this_host
from monarch.config import configure


class Trainer(Actor):
    @endpoint
    def setup(self, group: Any, learning_rate: float) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)  # the same first weights on each rank
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1), process_group=group)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=learning_rate)
        self.data = torch.Generator().manual_seed(current_rank().rank)  # data of its own

    @endpoint
    def train(self, steps: int) -> float:
        for _ in range(steps):
            inputs = torch.randn(16, 4, generator=self.data)
            loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()  # averages the gradients of all ranks
            self.optimizer.step()
        return float(loss.item())

    @endpoint
    def state(self) -> dict[str, torch.Tensor]:
        return {name: each.detach() for name, each in self.model.module.state_dict().items()}


# endregion


def main() -> None:
    # region spawn
    configure(preload=["torch._dynamo"])  # what optimizers import: once, not by each rank
    procs = this_host().spawn_procs({"gpus": 4})
    trainers = procs.spawn("trainers", Trainer)
    with procs.activate() as mesh:
        trainers.setup.call(mesh.process_group("gpus"), learning_rate=0.1).get()
    # endregion

    # region loop
    for epoch in range(1, 5):
        losses = trainers.train.call(steps=15).get()
        mean = sum(losses.values()) / len(losses)
        print(f"epoch {epoch}: {'learning' if mean > 1e-3 else 'done'}")
        if mean <= 1e-3:
            break
    # endregion

    # region state
    weights = trainers.slice(gpus=0).state.call_one().get()
    print("learned:", [round(each, 1) for each in weights["weight"].flatten().tolist()])
    # endregion
    procs.stop().get()


if __name__ == "__main__":
    main()
