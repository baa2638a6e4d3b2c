"""Fit a model with eight workers and a parameter server that moves no data itself.

The server shares its weights and a gradient slot for every worker, hands out the names of that
memory, and computes. Workers fetch the weights and deliver their gradients by themselves: no code
of the server runs for that.

    python examples/parameter_server.py

What to look for:

* ``share_state``          memory that others may read and write; the handle travels in an ordinary message
* ``pull`` and ``push``    a whole state dict in one submission, in place
* ``fetch_add``            a counter in the server's memory, on which eight processes count together
* ``explain``              which path the bytes take, and why
"""

import random
from array import array
from dataclasses import dataclass

from monarch.actor import Actor, current_rank, endpoint, this_host
from monarch.rdma import RDMABuffer, SharedState, pull, push, share_state

WORKERS = 8
STEPS = 60
SAMPLES = 200  # per worker
LEARNING_RATE = 0.3
TRUTH = [3.0, -2.0, 0.5, 1.0]  # what the workers' data was made with; the last one is the bias


@dataclass(frozen=True)
class Handles:
    """Names of the server's memory."""

    weights: SharedState
    gradients: list[SharedState]  # one for each worker
    done: RDMABuffer  # how many gradients were delivered


class Server(Actor):
    """Owns the weights. Its only work is the arithmetic."""

    def __init__(self) -> None:
        self.weights = {"w": array("d", [0.0] * len(TRUTH))}
        self.gradients = [{"w": array("d", [0.0] * len(TRUTH))} for _ in range(WORKERS)]
        self.done = bytearray(8)
        self.handles = Handles(
            share_state(self.weights, copy=False),
            [share_state(gradient, copy=False) for gradient in self.gradients],
            RDMABuffer(self.done),
        )

    @endpoint
    def share(self) -> Handles:
        return self.handles

    @endpoint
    def step(self) -> list[float]:
        """One step of gradient descent, with the mean of the gradients; the new weights."""
        for index in range(len(TRUTH)):
            mean = sum(gradient["w"][index] for gradient in self.gradients) / WORKERS
            self.weights["w"][index] -= LEARNING_RATE * mean
        return list(self.weights["w"])

    @endpoint
    def count(self) -> int:
        return int.from_bytes(self.done, "little")


class Worker(Actor):
    """Has data of its own; reads and writes the server's memory without asking it."""

    def __init__(self, handles: Handles) -> None:
        self.handles = handles
        self.rank = current_rank().rank
        rng = random.Random(self.rank)
        self.inputs = [[rng.uniform(-1, 1) for _ in TRUTH[:-1]] + [1.0] for _ in range(SAMPLES)]
        self.outputs = [sum(w * x for w, x in zip(TRUTH, row, strict=True)) for row in self.inputs]

    @endpoint
    def deliver_gradient(self) -> None:
        weights = {"w": array("d", [0.0] * len(TRUTH))}
        pull(self.handles.weights, weights).get()
        gradient = {"w": array("d", [0.0] * len(TRUTH))}
        for row, wanted in zip(self.inputs, self.outputs, strict=True):
            error = sum(w * x for w, x in zip(weights["w"], row, strict=True)) - wanted
            for index, x in enumerate(row):
                gradient["w"][index] += 2 * error * x / SAMPLES
        push(gradient, self.handles.gradients[self.rank]).get()
        self.handles.done.fetch_add(1).get()


def main() -> None:
    procs = this_host().spawn_procs(per_host={"procs": 1 + WORKERS})
    server = procs.slice(procs=0).spawn("server", Server)
    handles = server.share.call_one().get()
    workers = procs.slice(procs=slice(1, None)).spawn("workers", Worker, handles)
    print(f"the bytes take the path {handles.done.explain(workers.slice(procs=0)).taken!r}")
    weights: list[float] = []
    for step in range(STEPS):
        workers.deliver_gradient.call().get()
        weights = server.step.call_one().get()
        if step % 15 == 0 or step == STEPS - 1:
            print(f"step {step:2}  weights {'  '.join(f'{w:6.3f}' for w in weights)}")
    delivered = server.count.call_one().get()
    print(f"{delivered} gradients were delivered")
    assert delivered == WORKERS * STEPS, "a gradient is missing"
    assert all(abs(w - truth) < 0.01 for w, truth in zip(weights, TRUTH, strict=True)), (
        "not the weights of the data"
    )
    procs.stop().get()


if __name__ == "__main__":
    main()
