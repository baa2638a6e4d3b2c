"""Data-parallel training: four processes, each with a quarter of every batch, and gradients
averaged as soon as they are there.

Each rank derives its own loss. A hook on each parameter lends its gradient, as soon as the backward
pass has completed it, to a second stream, which reduces it over the mesh while the pass goes on. So
the ranks keep the same weights, and these must be those that one process finds with the whole
batches.

    python examples/ddp.py

What to look for:

* ``Averaging.average``            a hook of torch, a borrow, and the one operation that crosses ranks
* ``Averaging.finish``             the borrows end: what follows waits, on the ranks, for the reductions; the program does not
* ``index_select(0, ...)``         of each batch, every rank takes the quarter that belongs to it
* ``inspect(losses)``              nothing was waited for until here: the program had long issued all steps
"""

import math
from contextlib import ExitStack

import torch
from torch import nn

from monarch import DeviceMesh, Stream, Tensor, inspect, reduce, reduce_
from monarch.actor import this_host

CLASSES, BATCH, STEPS, LEARNING_RATE = 3, 96, 100, 0.02


class Averaging:
    """Averages the gradients of a network over the ranks of a mesh, on a stream of its own, each as
    it is completed.
    """

    def __init__(self, net: nn.Module) -> None:
        self.stream = Stream("averaging")
        self.borrows = ExitStack()
        for parameter in net.parameters():
            parameter.register_post_accumulate_grad_hook(self.average)  # type: ignore[no-untyped-call]

    def average(self, parameter: torch.Tensor) -> None:
        assert isinstance(parameter.grad, Tensor)
        gradient, borrow = self.stream.borrow(parameter.grad, mutable=True)
        with self.stream.activate():
            reduce_(gradient, "dp", "avg")
        self.borrows.enter_context(borrow)

    def finish(self) -> None:
        """From here on the program uses the gradients again: the ranks wait for what is still under
        way.
        """
        self.borrows.close()


def network() -> nn.Sequential:
    # while a mesh is active, on all of its ranks: they begin with the same weights
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, CLASSES)
    )


def spirals(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on three spirals, and which one each is on."""
    torch.manual_seed(seed)
    labels = torch.arange(BATCH) % CLASSES
    radius = torch.rand(BATCH)
    angle = 4 * radius + labels * (2 * math.pi / CLASSES) + 0.1 * torch.randn(BATCH)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), labels


def quarter(tensor: torch.Tensor, mesh: DeviceMesh) -> torch.Tensor:
    parts = torch.stack(tensor.chunk(mesh.size("dp")))
    return parts.index_select(0, mesh.rank("dp").reshape(1))[0]


def train_on_mesh(mesh: DeviceMesh) -> list[float]:
    net = network()
    averaging = Averaging(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    losses = []
    for step in range(STEPS):
        points, labels = (quarter(part, mesh) for part in spirals(step))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(points), labels)
        torch.autograd.backward(loss)
        averaging.finish()
        optimizer.step()
        losses.append(reduce(loss.detach(), "dp", "avg"))
    return [value.item() for value in inspect(losses)]


def train_here() -> list[float]:
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=LEARNING_RATE)
    losses = []
    for step in range(STEPS):
        points, labels = spirals(step)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(points), labels)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def run() -> tuple[list[float], list[float]]:
    """The losses on the mesh, and in this process."""
    procs = this_host().spawn_procs(per_host={"dp": 4})
    with procs.activate() as mesh:
        losses = train_on_mesh(mesh)
    procs.stop().get()
    return losses, train_here()


def main() -> None:
    losses, expected = run()
    print("step   mesh     one process")
    for step in [*range(0, STEPS, 10), STEPS - 1]:
        print(
            f"{step:4}   {losses[step]:7.5f}  {expected[step]:7.5f} "
            f" {'#' * round(40 * losses[step])}"
        )
    difference = max(abs(one - other) for one, other in zip(losses, expected, strict=True))
    print(f"\nlargest difference: {difference:.1e}")
    assert difference < 1e-2, "training on the mesh went another way than training in one process"
    assert losses[-1] < 0.2, "it has not learned to tell the spirals apart"


if __name__ == "__main__":
    main()
