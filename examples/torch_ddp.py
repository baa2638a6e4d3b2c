"""Data-parallel training as in any script for torchrun, but in actors: `torch.distributed` and
`DistributedDataParallel`.

Four actors form a process group, train one model on a quarter of the data each, and keep equal
weights.

    python examples/torch_ddp.py

What to look for:

* ``setup_torch_elastic_env(procs)``   sets RANK, WORLD_SIZE, MASTER_ADDR and so on, so that init_process_group needs no arguments
* ``configure(preload=[...])``         DDP and optimizers import 800 modules of torch on first use; this way once, not once per rank
* ``trainers.train.call(...)``         all ranks at once, as collectives need; a rank that fails is an error here, not a hang
"""

from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure
from monarch.spmd import setup_torch_elastic_env

RANKS = 4


class Trainer(Actor):
    def __init__(self) -> None:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        torch.set_num_threads(1)
        torch.manual_seed(0)
        dist.init_process_group("gloo")  # "nccl" for GPUs
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    @endpoint
    def train(self, steps: int) -> float:
        import torch

        generator = torch.Generator().manual_seed(self.rank)  # each rank has data of its own
        for _ in range(steps):
            inputs = torch.randn(16, 4, generator=generator)
            loss = (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()  # averages the gradients of all ranks
            self.optimizer.step()
        return float(loss.item())

    @endpoint
    def weights(self) -> list[float]:
        return [round(value, 4) for value in self.model.module.weight.flatten().tolist()]

    def __cleanup__(self, error: Exception | None) -> None:
        import torch.distributed as dist

        dist.destroy_process_group()


def main() -> None:
    configure(preload=["torch", "torch._dynamo"])
    procs = this_host().spawn_procs({"gpus": RANKS})
    setup_torch_elastic_env(procs)
    trainers = procs.spawn("trainers", Trainer)
    losses = trainers.train.call(steps=60).get()
    weights = trainers.weights.call().get().values()
    print("loss of each rank:", ", ".join(f"{loss:.4f}" for loss in losses.values()))
    print("weights:", weights[0])
    assert all(each == weights[0] for each in weights), "the ranks have gone different ways"
    assert all(abs(weight - 1) < 0.01 for weight in weights[0]), "it has not learned to add"
    trainers.stop().get()


if __name__ == "__main__":
    main()
