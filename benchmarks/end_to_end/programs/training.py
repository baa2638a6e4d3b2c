"""What ranks do under each of the launchers: join the group that the environment names, and
train.
"""

from __future__ import annotations

import statistics
import time

BATCH, LENGTH, LETTERS, WIDTH, HEADS, LAYERS = 16, 32, 64, 64, 4, 2
WARM_UP = 5


def first_step() -> None:
    """Do one step of data-parallel training; when it returns, all ranks have done it."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(16, 64)).square().mean().backward()
    optimizer.step()
    dist.barrier()


def milliseconds_a_step(steps: int) -> dict[str, float]:
    """The median of so many steps of a small transformer, by this rank's clock."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from benchmarks.end_to_end.programs.transformer import Transformer, batch, loss_of

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Transformer())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = batch()
    took = []
    for _ in range(WARM_UP + steps):
        begun = time.perf_counter()
        optimizer.zero_grad()
        torch.autograd.backward(loss_of(model, inputs))
        optimizer.step()
        took.append(time.perf_counter() - begun)
    dist.barrier()
    return {"a step": 1000 * statistics.median(took[WARM_UP:])}
