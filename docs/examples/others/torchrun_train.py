"""Data-parallel training as a script for torchrun: torchrun --nproc-per-node 4 torchrun_train.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


# region script
def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(60):
        inputs = torch.randn(16, 4, generator=generator)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0 and dist.get_rank() == 0:
            print(f"step {step}")
    losses = [None] * dist.get_world_size()
    dist.all_gather_object(losses, loss.item())
    if dist.get_rank() == 0:
        print(f"the worst loss is below 0.01: {max(losses) < 0.01}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
# endregion
