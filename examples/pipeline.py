"""A network in two stages, each on two processes of its own; micro-batches keep both stages busy.

The first half of the layers lives on one part of the mesh, the second half on another. `to_mesh`
carries what the first has found to the second, and gradients take the same way back. Nothing waits:
the program issues all micro-batches of a step, and while the second stage works on one, the first
has begun the next. Within a stage, two ranks share each micro-batch.

    python examples/pipeline.py

What to look for:

* ``mesh.slice(stage=0)``          a part of the mesh; what is made while it is active lives there
* ``hidden.to_mesh(...)``          rank to rank, from one stage to the other; derived as anything else
* ``for loss in losses``           all micro-batches went forward; now all go backward, and their gradients add up
* ``with mesh.activate()``         needed where tensors are made; operations on tensors know where they belong
"""

import torch
from torch import nn

from monarch import DeviceMesh, inspect, reduce, reduce_
from monarch.actor import this_host

BATCH, MICRO_BATCHES, STEPS, LEARNING_RATE = 64, 4, 80, 0.015


def stages() -> list[nn.Sequential]:
    """The two halves of the network."""
    torch.manual_seed(0)
    first = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
    return [first, nn.Sequential(nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))]


def samples(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points in a square, and the waves over them."""
    torch.manual_seed(step)
    points = torch.rand(BATCH, 2) * 2 - 1
    return points, (3 * points[:, :1]).sin() * (3 * points[:, 1:]).cos()


def share(tensor: torch.Tensor, mesh: DeviceMesh) -> list[torch.Tensor]:
    """The micro-batches of each rank."""
    parts = torch.stack(tensor.chunk(mesh.size("dp")))
    return list(parts.index_select(0, mesh.rank("dp").reshape(1))[0].chunk(MICRO_BATCHES))


def train_on_meshes(first: DeviceMesh, second: DeviceMesh) -> list[float]:
    with first.activate():
        lower = stages()[0]
        lower_optimizer = torch.optim.Adam(lower.parameters(), lr=LEARNING_RATE)
    with second.activate():
        upper = stages()[1]
        upper_optimizer = torch.optim.Adam(upper.parameters(), lr=LEARNING_RATE)
    mean_losses = []
    for step in range(STEPS):
        with first.activate():
            points = share(samples(step)[0], first)
        with second.activate():
            waves = share(samples(step)[1], second)
        losses = []
        for x, y in zip(points, waves, strict=True):
            hidden = lower(x)
            losses.append(nn.functional.mse_loss(upper(hidden.to_mesh(second)), y) / MICRO_BATCHES)
        for loss in losses:
            torch.autograd.backward(loss)
        for parameter in [*lower.parameters(), *upper.parameters()]:
            reduce_(parameter.grad, "dp", "avg")
        for mesh, optimizer in ((first, lower_optimizer), (second, upper_optimizer)):
            with mesh.activate():
                optimizer.step()
                optimizer.zero_grad()
        mean_losses.append(reduce(torch.stack(losses).detach().sum(), "dp", "avg"))
    return [value.item() for value in inspect(mean_losses)]


def train_here() -> list[float]:
    net = nn.Sequential(*stages())
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    losses = []
    for step in range(STEPS):
        points, waves = samples(step)
        loss = nn.functional.mse_loss(net(points), waves)
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def run() -> tuple[list[float], list[float]]:
    """The losses on the meshes, and in this process."""
    procs = this_host().spawn_procs(per_host={"stage": 2, "dp": 2})
    with procs.activate() as mesh:
        first, second = mesh.slice(stage=0), mesh.slice(stage=1)
    losses = train_on_meshes(first, second)
    procs.stop().get()
    return losses, train_here()


def main() -> None:
    losses, expected = run()
    print("step   meshes   one process")
    for step in [*range(0, STEPS, 8), STEPS - 1]:
        print(
            f"{step:4}   {losses[step]:7.5f}  {expected[step]:7.5f} "
            f" {'#' * round(120 * losses[step])}"
        )
    difference = max(abs(one - other) for one, other in zip(losses, expected, strict=True))
    print(f"\nlargest difference: {difference:.1e}")
    assert difference < 1e-3, "training on the meshes went another way than training in one process"
    assert losses[-1] < losses[0] / 5, "it has not learned the waves"


if __name__ == "__main__":
    main()
