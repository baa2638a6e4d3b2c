"""Plan a training run without the GPUs: how long would a step take on 8 of them, or on 1,024, and
how fast must the network be?

The program trains a network data-parallel, as on a real mesh; only the mesh is that of a simulator,
so nothing is computed and no process is started. Gradients are averaged as the backward pass
completes them: at once, in the way of the pass, or on a stream of their own, beside it. Each
program runs once and is replayed on machines with faster and slower networks.

    python examples/simulate_ddp.py

What to look for:

* ``Simulator(hosts, GPUS)``       the mesh; ``with simulator.mesh.activate():`` as ever
* ``simulator.step()``             what all since the last one would take: seconds, and megabytes on each rank
* ``replay(file, machine)``        the same instructions on another machine, without the program
* ``stream.borrow(grad, ...)``     lends the gradient to the stream of communication until the optimizer needs it
"""

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

from monarch import Simulator, Stream, reduce_
from monarch.simulator import MACHINES, Link, Machine, Step, replay

GPUS = 8  # on each host
HOSTS = (1, 8, 128)
NETWORKS = (400, 100, 25)  # Gbit/s for each GPU
LAYERS, WIDTH, ROWS = 8, 4096, 4096


class Averaging:
    """Averages gradients over all ranks, each as it is completed; on a stream of its own, if there
    is one.
    """

    def __init__(self, net: nn.Module, stream: Stream | None) -> None:
        self._stream = stream
        self._borrows: list[Any] = []
        for parameter in net.parameters():
            parameter.register_post_accumulate_grad_hook(self.average)  # type: ignore[no-untyped-call]

    def average(self, parameter: Any) -> None:
        if self._stream is None:
            reduce_(parameter.grad, ("host", "gpu"), "avg")
            return
        lent, borrow = self._stream.borrow(parameter.grad, mutable=True)
        with self._stream.activate():
            reduce_(lent, ("host", "gpu"), "avg")
        self._borrows.append(borrow)

    def wait(self) -> None:
        """From here on what is issued waits for the averages: on the ranks, not here."""
        for borrow in self._borrows:
            borrow.drop()
        self._borrows.clear()


def train(simulator: Simulator, stream: Stream | None, steps: int) -> list[Step]:
    with simulator.mesh.activate():
        layers = [
            layer
            for _ in range(LAYERS)
            for layer in (nn.Linear(WIDTH, WIDTH, dtype=torch.bfloat16), nn.ReLU())
        ]
        net = nn.Sequential(*layers)
        averaging = Averaging(net, stream)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        x = torch.ones(ROWS, WIDTH, dtype=torch.bfloat16)
        simulator.step()
        done = []
        for _ in range(steps):
            optimizer.zero_grad()
            torch.autograd.backward(net(x).mean())
            averaging.wait()
            optimizer.step()
            done.append(simulator.step())
    return done


def with_network(gigabits: float) -> Machine:
    """An H100 whose share of the network is so fast; of what is promised, 80 % arrive."""
    h100 = MACHINES["h100"]
    return h100.replace(network=Link(h100.network.latency, 0.8 * gigabits / 8 * 1e9))


def predict(hosts: int, stream: Stream | None, folder: Path) -> dict[int, Step]:
    """The second step, for each network."""
    history = folder / "history.pkl"
    simulator = Simulator(
        hosts, GPUS, simulate_mode="command_history", command_history_path=history
    )
    train(simulator, stream, 2)
    return {gigabits: replay(history, with_network(gigabits))[-1] for gigabits in NETWORKS}


def main() -> None:
    communication = Stream("communication")
    print(
        f"{LAYERS} layers of {WIDTH} x {WIDTH}, {ROWS} rows on each GPU: milliseconds for a step\n"
    )
    print("        " + "".join(f"{gigabits:>9} Gbit/s     " for gigabits in NETWORKS) + "memory")
    print("  GPUs  " + "in the way  beside  " * len(NETWORKS))
    with tempfile.TemporaryDirectory() as folder:
        for hosts in HOSTS:
            plain = predict(hosts, None, Path(folder))
            beside = predict(hosts, communication, Path(folder))
            cells = "".join(
                f"{plain[g].seconds * 1e3:10.1f}{beside[g].seconds * 1e3:8.1f}  " for g in NETWORKS
            )
            print(f"{hosts * GPUS:6}  {cells}{plain[NETWORKS[0]].megabytes:4.0f} MB")
            assert all(beside[g].seconds <= plain[g].seconds for g in NETWORKS)


if __name__ == "__main__":
    main()
