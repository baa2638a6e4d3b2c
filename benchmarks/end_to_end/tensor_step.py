"""The step of `ddp_step` with distributed tensors: one controller issues it on all ranks, beside
torchrun.

Each rank has its own batch; gradients are averaged as one vector, as `DistributedDataParallel` does
in buckets. The step is recorded, as that of a loop that repeats itself should be; beside it the
same step whose operations are issued one by one.
"""

from __future__ import annotations

import time
from functools import partial

from benchmarks.end_to_end import ddp_step
from benchmarks.end_to_end.contenders import OURS, Contender, Quantity, Row, main
from benchmarks.end_to_end.programs.training import WARM_UP
from benchmarks.targets import Target
from monarch.actor import this_host
from monarch.config import configure

ISSUED = f"{OURS}, operations issued one by one"


def with_tensors(ranks: int, steps: int, recorded: bool) -> dict[str, float]:
    import torch

    from benchmarks.end_to_end.programs.transformer import Transformer, batch, loss_of
    from monarch import inspect, reduce_
    from monarch.tensor_engine import record

    configure(preload=["torch._dynamo"])
    procs = this_host().spawn_procs({"gpus": ranks})
    with procs.activate():
        torch.manual_seed(0)
        model = Transformer()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        inputs = batch()

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, inputs)
            torch.autograd.backward(loss)
            gradients = [
                parameter.grad for parameter in model.parameters() if parameter.grad is not None
            ]
            flat = torch.cat([gradient.flatten() for gradient in gradients])
            reduce_(flat, "gpus", "avg")
            for gradient, part in zip(
                gradients, torch.split(flat, [each.numel() for each in gradients]), strict=True
            ):
                gradient.copy_(part.reshape(gradient.shape))
            optimizer.step()
            return loss.detach()

        if recorded:
            step = record(step)
        for _ in range(WARM_UP):
            loss = step()
        inspect(loss)
        begun = time.perf_counter()
        for _ in range(steps):
            loss = step()
        inspect(loss)  # all steps were issued: now they are done
        took = time.perf_counter() - begun
    procs.stop().get()
    return {"a step": 1000 * took / steps}


ROW = Row(
    name="tensor_step",
    title="A data-parallel step with distributed tensors, small transformer",
    contenders={
        OURS: Contender(partial(with_tensors, recorded=True), ("torch",)),
        ISSUED: Contender(partial(with_tensors, recorded=False), ("torch",)),
        "torchrun": ddp_step.ROW.contenders["torchrun"],
    },
    quantities={"a step": Quantity("ms", {"torchrun": Target(1 / 1.10, 1 / 1.05)})},
    settings={"ranks": 4, "steps": 60},
)


if __name__ == "__main__":
    main(ROW)
