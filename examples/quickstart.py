"""Train a small neural network on 8 processes, with nothing but the standard library.

Eight trainers hold one eighth of the data each. In every step the script sends the same weights to
all of them, collects eight gradients, averages them and moves the weights: data-parallel gradient
descent, with the loop written where it is easiest to read, in one ordinary script.

    python examples/quickstart.py

What to look for:

* ``spawn_procs`` and ``spawn``    8 processes, and one ``Trainer`` in each
* ``broadcast``                    send to all, want no answer
* ``call``                         send to all, get one value per rank
* ``call_one`` on a slice          ask one rank
* ``ActorError``                   a remote exception, caught here, with the trainer still alive
"""

import math
import random
from dataclasses import dataclass
from pathlib import Path

from monarch.actor import Actor, ActorError, current_rank, current_size, endpoint, this_host

TRAINERS = 8
STEPS = 120
HIDDEN = 8
LEARNING_RATE = 0.5
MOMENTUM = 0.9

Sample = tuple[float, float, int]


def two_moons(count: int, seed: int) -> list[Sample]:
    """Points (x, y, label) in two interleaved half circles, with some noise: no straight line
    separates them.
    """
    rng = random.Random(seed)
    samples = []
    for i in range(count):
        label = i % 2
        angle = rng.uniform(0.0, math.pi)
        x, y = math.cos(angle), math.sin(angle)
        if label:
            x, y = 1.0 - x, 0.5 - y
        samples.append((x + rng.gauss(0.0, 0.1), y + rng.gauss(0.0, 0.1), label))
    return samples


# The model has 2 inputs, 8 hidden units and 1 output; its weights are one flat list, so that
# averaging is one line. Hidden unit j owns four weights: two for its inputs, its bias, and the one
# with which it enters the output.


def new_weights(seed: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.gauss(0.0, 1.0) for _ in range(4 * HIDDEN)] + [0.0]


def forward(weights: list[float], x: float, y: float) -> tuple[list[float], float]:
    """The hidden activations, and the probability that (x, y) has label 1."""
    hidden = []
    total = weights[-1]
    for j in range(0, 4 * HIDDEN, 4):
        h = math.tanh(weights[j] * x + weights[j + 1] * y + weights[j + 2])
        hidden.append(h)
        total += weights[j + 3] * h
    return hidden, 1.0 / (1.0 + math.exp(-total))


def accuracy(weights: list[float], samples: list[Sample]) -> float:
    right = sum((forward(weights, x, y)[1] > 0.5) == bool(label) for x, y, label in samples)
    return right / len(samples)


@dataclass(frozen=True)
class Step:
    """What one trainer found in one step, over its own samples."""

    loss: float
    gradient: list[float]


class Trainer(Actor):
    """Holds one shard of the data and a copy of the weights.

    Its methods run in its own process, one at a time.
    """

    def __init__(self, samples: int) -> None:
        rank, ranks = current_rank().rank, current_size()["gpus"]
        self.shard = two_moons(samples, seed=1)[rank::ranks]
        self.weights: list[float] = []

    @endpoint
    def set_weights(self, weights: list[float]) -> None:
        self.weights = weights

    @endpoint
    def resume(self, checkpoint: Path) -> None:
        self.weights = [float(line) for line in checkpoint.read_text().split()]

    @endpoint
    def step(self) -> Step:
        loss = 0.0
        gradient = [0.0] * len(self.weights)
        for x, y, label in self.shard:
            hidden, p = forward(self.weights, x, y)
            loss -= math.log(max(p if label else 1.0 - p, 1e-12))
            error = p - label
            gradient[-1] += error
            for i, h in enumerate(hidden):
                j = 4 * i
                back = error * self.weights[j + 3] * (1.0 - h * h)
                gradient[j] += back * x
                gradient[j + 1] += back * y
                gradient[j + 2] += back
                gradient[j + 3] += error * h
        n = len(self.shard)
        return Step(loss / n, [g / n for g in gradient])

    @endpoint
    def evaluate(self, samples: list[Sample]) -> float:
        return accuracy(self.weights, samples)

    @endpoint
    def report(self) -> tuple[int, float]:
        return len(self.shard), accuracy(self.weights, self.shard)


def mean(columns: list[list[float]]) -> list[float]:
    return [sum(column) / len(columns) for column in zip(*columns, strict=True)]


def main() -> None:
    # One process per (pretended) GPU, and one Trainer in each. Both lines return at once.
    procs = this_host().spawn_procs(per_host={"gpus": TRAINERS})
    trainers = procs.spawn("trainers", Trainer, samples=480)

    # An exception in an endpoint comes back to the caller. The trainer that raised it goes on
    # working.
    weights = new_weights(seed=2)
    try:
        trainers.slice(gpus=3).resume.call_one(Path("no-such-checkpoint.txt")).get()
    except ActorError as error:
        print(
            f"trainer 3 could not resume ({type(error.exception).__name__}), so all start from new"
            " weights\n"
        )

    print("step    loss")
    velocity = [0.0] * len(weights)
    for step in range(STEPS):
        trainers.set_weights.broadcast(weights)
        # Messages from one sender arrive in the order sent: every trainer has the new weights
        # before it takes the step.
        results = trainers.step.call().get().values()
        gradient = mean([result.gradient for result in results])
        velocity = [
            MOMENTUM * v - LEARNING_RATE * g for v, g in zip(velocity, gradient, strict=True)
        ]
        weights = [w + v for w, v in zip(weights, velocity, strict=True)]
        if step % 10 == 0 or step == STEPS - 1:
            loss = sum(result.loss for result in results) / len(results)
            print(f"{step:4}  {loss:6.4f}  {'#' * round(60 * loss)}")

    # A slice is a mesh like any other. Here two ranks are enough to score data that no trainer has
    # seen.
    trainers.set_weights.broadcast(weights)
    unseen = two_moons(400, seed=3)
    scores = trainers.slice(gpus=slice(0, 2)).evaluate.call(unseen).get()
    print(
        f"\naccuracy on unseen data: {scores.item(gpus=0):.1%} (rank 1 agrees:"
        f" {scores.item(gpus=1):.1%})\n"
    )

    print("rank  samples  accuracy")
    for point, (samples, score) in trainers.report.call().get().items():
        print(f"{point['gpus']:4}  {samples:7}  {score:8.1%}")

    procs.stop().get()


if __name__ == "__main__":
    main()
