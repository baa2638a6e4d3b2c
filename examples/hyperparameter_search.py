"""Hyperparameter search with early stopping: 27 trials, of which each round stops two thirds.

This is successive halving, with a factor of 3: Jamieson and Talwalkar 2016, arXiv:1502.07943; Li
et al., Hyperband, arXiv:1603.06560. Four workers train the trials. One is killed in the middle of
the search, and another one trains what it had.

    python examples/hyperparameter_search.py      needs numpy

What to look for:

* ``Trial``              has all that training goes on with, so any worker may go on with it
* ``Service``            gives trials to the worker with the least to do, replaces one that dies
* ``idempotent=True``    a trial whose worker died goes to another one, as it was before the call
"""

import logging
import os
import random
import signal
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from monarch.actor import Actor, endpoint, this_host
from monarch.service import Service

logging.getLogger("monarch.service").setLevel(logging.ERROR)  # each replacement is a warning there

WORKERS = 4
TRIALS, FACTOR = 27, 3
EPOCHS = 4  # of each trial in the first round; `FACTOR` times as many in each of the next ones
LONGEST = 108  # epochs of the trial that is never stopped
SAMPLES, BATCH = 256, 8

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Trial:
    """Hyperparameters, and how far training with them has come."""

    number: int
    rate: float
    momentum: float
    width: int
    epochs: int = 0
    loss: float = float("inf")  # on samples that are not trained on
    weights: tuple[Array, ...] = ()
    velocities: tuple[Array, ...] = ()


def draw(number: int) -> Trial:
    rng = random.Random(number)
    return Trial(
        number, 10 ** rng.uniform(-3, 0.5), rng.choice([0.0, 0.5, 0.9]), rng.choice([2, 4, 8, 16])
    )


def samples(seed: int) -> tuple[Array, Array]:
    """Points of a square, and whether they are in a ring."""
    points = np.random.default_rng(seed).uniform(-1, 1, (SAMPLES, 2))
    radius = np.hypot(*points.T)
    return points, ((0.4 < radius) & (radius < 0.8)).astype(float)


def forward(weights: tuple[Array, ...], points: Array) -> tuple[Array, Array]:
    """Activations of the hidden layer, and the probability that a point is in the ring."""
    w1, b1, w2, b2 = weights
    hidden = np.tanh(points @ w1 + b1)
    return hidden, 1 / (1 + np.exp(-np.clip(hidden @ w2 + b2, -30, 30)))


def gradients(weights: tuple[Array, ...], points: Array, inside: Array) -> tuple[Array, ...]:
    """Of the mean cross-entropy."""
    hidden, probability = forward(weights, points)
    at_output = (probability - inside) / len(points)
    at_hidden = np.outer(at_output, weights[2]) * (1 - hidden**2)
    return points.T @ at_hidden, at_hidden.sum(axis=0), hidden.T @ at_output, at_output.sum()


def train(trial: Trial, epochs: int) -> Trial:
    """Go on with a trial. The result depends on nothing else, so a repeated call does no harm."""
    rng = np.random.default_rng([trial.number, trial.epochs])
    weights, velocities = trial.weights, trial.velocities
    if not weights:
        width = trial.width
        weights = rng.normal(size=(2, width)), np.zeros(width), rng.normal(size=width), np.zeros(())
        velocities = tuple(np.zeros_like(weight) for weight in weights)
    points, inside = samples(seed=1)
    for _ in range(epochs):
        for some in rng.permutation(SAMPLES).reshape(-1, BATCH):
            downhill = gradients(weights, points[some], inside[some])
            velocities = tuple(
                trial.momentum * v - trial.rate * g
                for v, g in zip(velocities, downhill, strict=True)
            )
            weights = tuple(w + v for w, v in zip(weights, velocities, strict=True))
    points, inside = samples(seed=2)
    probability = forward(weights, points)[1].clip(1e-9, 1 - 1e-9)
    loss = -np.mean(np.where(inside == 1, np.log(probability), np.log(1 - probability)))
    return replace(
        trial,
        epochs=trial.epochs + epochs,
        loss=float(loss),
        weights=weights,
        velocities=velocities,
    )


class Worker(Actor):
    @endpoint
    def train(self, trial: Trial, epochs: int) -> Trial:
        return train(trial, epochs)

    @endpoint
    def pid(self) -> int:
        return os.getpid()


def search(workers: Service[Worker]) -> tuple[Trial, int]:
    """The best trial, and how many epochs were trained for it."""
    trials = [draw(number) for number in range(TRIALS)]
    epochs, total = EPOCHS, 0
    print("trials  epochs  best loss  worst loss  stopped")
    while True:
        more = epochs - trials[0].epochs
        reports = [workers.train.call_one(trial, more) for trial in trials]
        if len(trials) == TRIALS // FACTOR:
            os.kill(workers.pid.call_one().get(), signal.SIGKILL)  # most of these are being trained
        trials = sorted((report.get() for report in reports), key=lambda trial: trial.loss)
        total += more * len(trials)
        kept = len(trials) // FACTOR
        print(
            f"{len(trials):6}  {epochs:6}  {trials[0].loss:9.4f}  {trials[-1].loss:10.4f}"
            f"  {len(trials) - kept if kept else 0:7}"
        )
        if not kept:
            return trials[0], total
        trials, epochs = trials[:kept], epochs * FACTOR


def main() -> None:
    with Service(this_host(), Worker, replicas=WORKERS, idempotent=True, in_flight=2) as workers:
        workers.scale(WORKERS).get()  # all are ready
        best, total = search(workers)
        replaced = sum(worker.restarts for worker in workers.status().get())
        everything = [workers.train.call_one(draw(number), LONGEST) for number in range(TRIALS)]
        losses = sorted(trial.get().loss for trial in everything)
    print(
        f"\nthe best: rate {best.rate:.4f}, momentum {best.momentum}, width {best.width}: loss"
        f" {best.loss:.4f}"
    )
    print(
        f"{total} epochs; without stopping {TRIALS * LONGEST}, and the losses {losses[0]:.4f},"
        f" {losses[1]:.4f}, ..."
    )
    assert best.epochs == LONGEST
    assert replaced == 1, "the worker that was killed was not replaced"
    assert best.loss <= losses[2] * 1.05, "at least three trials would have been better"
    assert total < TRIALS * LONGEST / 5, "stopping has saved too little"


if __name__ == "__main__":
    main()
