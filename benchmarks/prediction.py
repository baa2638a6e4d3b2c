"""Steps of training on real ranks of this machine, and as the simulator predicts them:
`python -m benchmarks.prediction`.

Measures the machine first. Prints both, and fails if they differ by more than a factor of two in
total. It compares the time that passes, so nothing else should be running;
tests/procs/test_simulator_real.py compares processor time, and need not mind.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from monarch import inspect, reduce_, remote
from monarch.actor import this_host
from monarch.simulator import Simulator, measure

FACTOR = 2.0
ROUNDS = 20


class Network(NamedTuple):
    """Layers of ``width`` times ``width``, with ``batch`` rows on each rank."""

    width: int
    batch: int
    layers: int


NETWORKS = (Network(64, 16, 2), Network(256, 64, 3), Network(512, 256, 3), Network(1024, 256, 3))


def training(network: Network, dim: str | None) -> Callable[[], Any]:
    """A step on the active mesh; with gradients averaged along a dimension, if there is one."""
    width = network.width
    net = nn.Sequential(
        *[layer for _ in range(network.layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.randn(network.batch, width)

    def step() -> Any:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        torch.autograd.backward(loss)
        if dim is not None:
            for parameter in net.parameters():
                reduce_(parameter.grad, dim, "avg")
        optimizer.step()
        return loss

    return step


def best(
    mesh: Any, network: Network, dim: str | None, clock: Callable[[float], float], rounds: int
) -> float:
    """Seconds for a step, from the first operation until its loss is here."""
    with mesh.activate():
        step = training(network, dim)
        times = []
        for _ in range(rounds):
            begun = time.perf_counter()
            inspect(step())
            times.append(clock(time.perf_counter() - begun))
    return min(times[1:])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prediction", description=__doc__)
    parser.add_argument("--procs", type=int, default=2)
    ranks = parser.parse_args().procs
    procs = this_host().spawn_procs(per_host={"gpu": ranks})
    with procs.activate():
        remote("torch.set_num_threads", propagate="inspect")(1)
    machine = measure(procs)
    print(
        f"{machine.source}: milliseconds for a step\n{'width, rows, layers':>20}  reduced      real"
        "  simulated"
    )
    totals = [0.0, 0.0]
    for network in NETWORKS:
        for dim in (None, "gpu"):
            real = best(procs, network, dim, float, ROUNDS)
            sim = Simulator(1, ranks, machine=machine, simulate_mode="simulate_with_report_only")
            simulated = best(sim.mesh, network, dim, lambda _, sim=sim: sim.step().seconds, 3)  # type: ignore[misc]
            print(
                f"{', '.join(map(str, network)):>20}  {dim is not None!s:7}  {real * 1e3:8.2f} "
                f" {simulated * 1e3:9.2f}"
            )
            totals = [totals[0] + real, totals[1] + simulated]
    procs.stop().get()
    ratio = totals[1] / totals[0]
    print(f"simulated / real, in total: {ratio:.2f}")
    return 0 if 1 / FACTOR < ratio < FACTOR else 1


if __name__ == "__main__":
    raise SystemExit(main())
