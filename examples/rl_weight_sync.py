"""Reinforcement learning with weights that generators fetch by themselves, while the trainers go on changing them.

Four generators balance poles on carts (the classic CartPole), two trainers improve the policy by REINFORCE with a baseline.
Each trainer owns one half of the network, each generator has a copy of all of it. Episodes travel in messages, weights do not.

    python examples/rl_weight_sync.py                       needs numpy
    python examples/rl_weight_sync.py --plot rewards.png    and matplotlib

What to look for:

* ``Split``           what a trainer has of each weight; ``pull`` and ``push`` cut and join by it
* ``Trainer.learn``   all weights come in, and each half of the gradient goes out to its owner
* ``Trainer.apply``   and ``Generator.pull_newest``: readers are told that somebody wrote while they read, and nobody waits
* ``main``            the next episodes are played while the trainers learn from the last ones
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from monarch.actor import Actor, current_rank, endpoint, this_host
from monarch.rdma import SharedState, Split, empty_like, pull, push, share_state

TRAINERS = 2
GENERATORS = 4
ROUNDS = 80
EPISODES = 16  # per generator and round
LONGEST = 200  # steps; an episode that gets there is a full success
PULL_EVERY = 25  # steps
LEARNING_RATE = 0.05
HIDDEN = 16

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
State = dict[str, Array]

# The policy has 4 inputs, 16 hidden units and 1 output. Hidden unit j owns row j of every weight, and a trainer owns hidden units.
SHAPES: dict[str, tuple[int, ...]] = {"w1": (HIDDEN, 4), "b1": (HIDDEN,), "w2": (HIDDEN,)}


def new_weights(seed: int) -> State:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(scale=0.3, size=shape) for name, shape in SHAPES.items()}


def forward(weights: State, states: Array) -> tuple[Array, Array]:
    """The hidden activations, and the probability of a push to the right."""
    hidden = np.tanh(states @ weights["w1"].T + weights["b1"])
    return hidden, 1 / (1 + np.exp(-(hidden @ weights["w2"])))


def move(states: Array, right: Bools) -> tuple[Array, Bools]:
    """0.02 s of physics for carts, of which a row is (position, speed, angle, angular speed); and which of them are still up."""
    _, speed, angle, spin = states.T
    sine, cosine = np.sin(angle), np.cos(angle)
    push_and_swing = (np.where(right, 10.0, -10.0) + 0.05 * spin**2 * sine) / 1.1
    turning = (9.8 * sine - cosine * push_and_swing) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    moving = push_and_swing - 0.05 * turning * cosine / 1.1
    after = states + 0.02 * np.stack([speed, moving, spin, turning], axis=1)
    return after, (abs(after[:, 0]) < 2.4) & (abs(after[:, 2]) < np.radians(12))


@dataclass(frozen=True)
class Played:
    """Episodes side by side: [step, episode] or [step, episode, input]. Once an episode is not up, the rest of it is void."""

    states: Array
    right: Bools
    up: Bools
    versions: list[int]  # of the weights that were used, in this order

    @property
    def reward(self) -> float:
        """Mean over the episodes: one for each step that the pole was up."""
        return float(self.up.sum(axis=0).mean())


def policy_gradient(weights: State, played: Sequence[Played]) -> State:
    """REINFORCE: make each push as much more likely as the steps that followed exceed those that usually follow at that time.

    Episodes were played with weights a version or two old. That is little, and not corrected for.
    """
    states, right, up = (
        np.concatenate([getattr(p, name) for p in played], axis=1) for name in ("states", "right", "up")
    )
    to_come = np.cumsum(up[::-1], axis=0)[::-1]
    baseline = (to_come * up).sum(axis=1, keepdims=True) / np.maximum(up.sum(axis=1, keepdims=True), 1)
    advantage = (to_come - baseline) * up
    advantage /= np.sqrt((advantage**2).sum() / up.sum()) + 1e-8

    hidden, probability = forward(weights, states)
    at_output = advantage * (right - probability) / up.sum()
    at_hidden = at_output[..., None] * weights["w2"] * (1 - hidden**2)
    return {
        "w1": np.einsum("teh,tei->hi", at_hidden, states),
        "b1": at_hidden.sum(axis=(0, 1)),
        "w2": np.einsum("teh,te->h", hidden, at_output),
    }


@dataclass(frozen=True)
class Handles:
    """What a trainer hands out."""

    weights: SharedState  # its half
    inbox: list[SharedState]  # for its half of the gradient of each trainer


class Trainer(Actor):
    """Owns half of the rows of every weight, with what the optimizer (Adam) remembers of them."""

    def __init__(self) -> None:
        rank = current_rank().rank
        half = Split(dim=0, rank=rank, count=TRAINERS)
        whole = new_weights(seed=1)  # the same everywhere
        self.mine = {name: np.split(weight, TRAINERS)[rank].copy() for name, weight in whole.items()}
        self.mean, self.square, *self.gradients = (
            {name: np.zeros_like(weight) for name, weight in self.mine.items()} for _ in range(2 + TRAINERS)
        )
        self.steps = 0
        self.handles = Handles(
            share_state(self.mine, shards=half, copy=False),
            [share_state(gradient, shards=half, copy=False) for gradient in self.gradients],
        )

    @endpoint
    def share(self) -> Handles:
        return self.handles

    @endpoint
    def learn(self, trainers: list[Handles], played: list[Played]) -> None:
        """Tell every trainer its part of the gradient over my part of the episodes."""
        rank = current_rank().rank
        sources = [trainer.weights for trainer in trainers]
        weights = empty_like(sources)
        pull(sources, weights).get()
        gradient = policy_gradient(weights, played[rank::TRAINERS])
        push(gradient, [trainer.inbox[rank] for trainer in trainers]).get()

    @endpoint
    def apply(self) -> None:
        """Improve my half, in place. Whoever reads it meanwhile is told, and reads again."""
        self.steps += 1
        with self.handles.weights.writing():
            for name, weight in self.mine.items():
                gradient = sum(given[name] for given in self.gradients) / TRAINERS
                self.mean[name] += 0.1 * (gradient - self.mean[name])
                self.square[name] += 0.01 * (gradient**2 - self.square[name])
                mean, square = self.mean[name] / (1 - 0.9**self.steps), self.square[name] / (1 - 0.99**self.steps)
                weight += LEARNING_RATE * mean / (np.sqrt(square) + 1e-8)


class Generator(Actor):
    """Plays with the newest weights there are. Nobody sends them, and nobody is asked for them."""

    def __init__(self, trainers: list[SharedState]) -> None:
        self.trainers = trainers
        self.rng = np.random.default_rng(current_rank().rank)
        self.weights: State = {}
        self.version = 0

    def pull_newest(self) -> None:
        """Get all weights of one version; if one trainer is ahead of the other, keep those of before."""
        weights = empty_like(self.trainers)
        versions = pull(self.trainers, weights).get()
        if len(set(versions)) == 1 and versions[0] is not None:
            self.weights, self.version = weights, versions[0]

    @endpoint
    def play(self) -> Played:
        """Some episodes at once; new weights are used as soon as they are there, also in the middle of an episode."""
        states, up = self.rng.uniform(-0.05, 0.05, (EPISODES, 4)), np.ones(EPISODES, dtype=np.bool_)
        steps: list[tuple[Array, Bools, Bools]] = []
        used: list[int] = []
        for step in range(LONGEST):
            if step % PULL_EVERY == 0:
                self.pull_newest()
                used.append(self.version)
            right = self.rng.random(EPISODES) < forward(self.weights, states)[1]
            steps.append((states, right, up))
            states, fine = move(states, right)
            up = up & fine
        all_states, all_right, all_up = (np.array(column) for column in zip(*steps, strict=True))
        return Played(all_states, all_right, all_up, used)


def draw(rewards: list[float], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(rewards, color="#2a6f97")
    axes.set_xlabel("round")
    axes.set_ylabel(f"mean reward (at most {LONGEST})")
    axes.set_ylim(0, LONGEST * 1.05)
    axes.grid(color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="CartPole: generators pull the weights from the trainers.")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the rewards into this file")
    plot: Path | None = parser.parse_args().plot

    procs = this_host().spawn_procs(per_host={"procs": TRAINERS + GENERATORS})
    trainers = procs.slice(procs=slice(0, TRAINERS)).spawn("trainers", Trainer)
    handles = trainers.share.call().get().values()
    generators = procs.slice(procs=slice(TRAINERS, None)).spawn("generators", Generator, [h.weights for h in handles])

    rewards = []
    print("round  played with versions  reward")
    playing = generators.play.call()
    for number in range(ROUNDS):
        played = list(playing.get().values())
        playing = generators.play.call()  # goes on while the trainers learn
        trainers.learn.call(list(handles), played).get()  # when this returns, all gradients are where they belong
        trainers.apply.call().get()
        rewards.append(sum(p.reward for p in played) / GENERATORS)
        if number % 8 == 0 or number == ROUNDS - 1:
            used = [version for p in played for version in p.versions]
            span = f"{min(used)} to {max(used)}"
            print(f"{number:5}  {span:>20}  {rewards[-1]:6.1f}  {'#' * round(rewards[-1] / 4)}")
    playing.get()
    procs.stop().get()

    first, last = np.mean(rewards[:5]), np.mean(rewards[-10:])
    print(f"\nmean reward of the first 5 rounds {first:.0f}, of the last 10 {last:.0f}")
    assert last > 4 * first, "the policy did not learn"
    if plot is not None:
        draw(rewards, plot)


if __name__ == "__main__":
    main()
