"""Train one network on four processes, each layer split over two of them and each batch over two.

The script below is the whole program: it makes tensors and trains as any torch script does, but
while a mesh is active each operation runs on all ranks of it, each with its own data. Two lines
make the ranks differ: `rank` picks each one's share of the weights and of the batch. Two make them
work together: `reduce` adds what the halves of a layer found, and `reduce_` averages the gradients
over the halves of the batch. In the end the same network, trained by torch alone in this process,
must have the same loss after every step.

    python examples/tensor_parallel.py

What to look for:

* ``with procs.activate()``        from here on torch computes on the mesh
* ``mesh.rank("tp")``              a tensor that is different on each rank
* ``reduce(x, "tp")``              the only operations that cross ranks say so; gradients pass through
* ``inspect(loss)``                values come back when they are asked for, not before
"""

import torch
from torch import nn

from monarch import DeviceMesh, inspect, reduce, reduce_
from monarch.actor import this_host

STEPS = 30
BATCH, INPUT, HIDDEN, OUTPUT = 32, 8, 64, 1
LEARNING_RATE = 0.02


def full_weights() -> list[torch.Tensor]:
    """The same numbers wherever they are made: seeding, too, goes to all ranks."""
    torch.manual_seed(1)
    return [
        torch.randn(HIDDEN, INPUT) / INPUT**0.5,
        torch.zeros(HIDDEN),
        torch.randn(OUTPUT, HIDDEN) / HIDDEN**0.5,
    ]


def samples() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    x = torch.randn(BATCH, INPUT)
    return x, x.prod(1, keepdim=True).sign() * x.norm(dim=1, keepdim=True)


def share(tensor: torch.Tensor, rank: torch.Tensor, ranks: int, dim: int = 0) -> torch.Tensor:
    """Of `ranks` equal parts along a dimension, the one that belongs to each rank."""
    return torch.stack(tensor.chunk(ranks, dim)).index_select(0, rank.reshape(1))[0]


def loss_of(
    x: torch.Tensor, y: torch.Tensor, up: torch.Tensor, bias: torch.Tensor, down: torch.Tensor
) -> torch.Tensor:
    hidden = torch.tanh(nn.functional.linear(x, up, bias))
    return nn.functional.mse_loss(nn.functional.linear(hidden, down), y)


def train_on_mesh(mesh: DeviceMesh) -> list[float]:
    """`up` and `bias` are split by rows, `down` by columns, so that each half of the hidden layer
    stays on its ranks.
    """
    tp, dp = mesh.rank("tp"), mesh.rank("dp")
    up, bias, down = full_weights()
    x, y = (share(part, dp, mesh.size("dp")) for part in samples())
    parts = [share(up, tp, 2), share(bias, tp, 2), share(down, tp, 2, dim=1)]
    parameters = [nn.Parameter(part) for part in parts]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        half = torch.tanh(nn.functional.linear(x, parameters[0], parameters[1]))
        output = reduce(nn.functional.linear(half, parameters[2]), "tp", "sum")
        loss = nn.functional.mse_loss(output, y)
        # all ranks of "tp" compute it: together they count it once
        torch.autograd.backward(loss / mesh.size("tp"))
        for parameter in parameters:
            reduce_(parameter.grad, "dp", "avg")
        optimizer.step()
        losses.append(reduce(loss.detach(), "dp", "avg"))
    # Nothing was waited for until here: all steps were issued, and the values are asked for
    # together.
    return [value.item() for value in inspect(losses)]


def train_here() -> list[float]:
    x, y = samples()
    parameters = [nn.Parameter(part) for part in full_weights()]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(x, y, *parameters)
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def run() -> tuple[list[float], list[float]]:
    """The losses on the mesh, and in this process."""
    procs = this_host().spawn_procs(per_host={"dp": 2, "tp": 2})
    with procs.activate() as mesh:
        losses = train_on_mesh(mesh)
    procs.stop().get()
    return losses, train_here()


def main() -> None:
    losses, expected = run()
    print("step   mesh     one process")
    for step in range(0, STEPS, 3):
        print(
            f"{step:4}   {losses[step]:7.5f}  {expected[step]:7.5f} "
            f" {'#' * round(8 * losses[step])}"
        )
    difference = max(abs(one - other) for one, other in zip(losses, expected, strict=True))
    print(f"\nlargest difference: {difference:.1e}")
    assert difference < 1e-4, "training on the mesh went another way than training in one process"


if __name__ == "__main__":
    main()
