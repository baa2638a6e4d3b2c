"""GRPO: a small language model learns to add from rewards alone, beginning with random weights.

Two trainers improve the policy, two generators answer problems with it, a judge rewards right
answers. All of them work at the same time: generators fetch the newest weights from a trainer's
memory before each batch, and a replay buffer keeps answers until a trainer draws them.

    python examples/grpo.py                       needs torch
    python examples/grpo.py --plot rewards.png    and matplotlib

What to look for:

* ``Service``                     generators, judges: calls go to the replica with the least to do
* ``share_state`` and ``pull``    weights go from memory to memory; a pull during a step is repeated
* ``ReplayBuffer``                holds generators back when it is full, drops what is too old
* ``grpo_loss``                   the clipped objective, with advantages within a group of answers
"""

import argparse
import asyncio
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from monarch.actor import Actor, endpoint, this_host
from monarch.config import configure
from monarch.queues import ReplayBuffer
from monarch.rdma import SharedState, pull, share_state
from monarch.service import Service
from monarch.spmd import setup_torch_elastic_env_async

TRAINERS, GENERATORS = 2, 2
STEPS = 250
PROBLEMS, GROUP = 16, 8  # in a batch; answers to each
MAX_AGE = 4  # steps that answers may be behind the policy that learns from them
CLIP, KL_WEIGHT, LEARNING_RATE = 0.2, 0.1, 0.005

CHARACTERS = "0123456789+="
WIDTH = 32
PROMPT, ANSWER = 4, 1  # characters: "2+3=" and "5"


class Policy(nn.Module):
    """A transformer of one block, with 9,500 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(CHARACTERS), WIDTH)
        self.positions = nn.Embedding(PROMPT + ANSWER, WIDTH)
        nn.init.zeros_(self.positions.weight)  # 2+3 and 3+2 are one thing, until it learns more
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.attention = nn.Linear(WIDTH, 3 * WIDTH)
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.out = nn.Linear(WIDTH, len(CHARACTERS))

    def forward(self, tokens: Tensor) -> Tensor:
        """[sequence, position] -> log-probabilities [sequence, position, character] of what is
        next.
        """
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        query, key, value = self.attention(self.norms[0](x)).chunk(3, dim=-1)
        x = x + self.mix(
            nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        )
        x = x + self.mlp(self.norms[1](x))
        return torch.log_softmax(self.out(x), dim=-1)


def new_policy() -> Policy:
    torch.set_num_threads(1)
    torch.manual_seed(0)  # the same on every trainer
    return Policy()


def problems(rng: random.Random) -> list[str]:
    return [f"{rng.randrange(5)}+{rng.randrange(5)}=" for _ in range(PROBLEMS)]


def reward(text: str) -> float:
    """1 for "2+3=5", 0 for all other answers to "2+3="."""
    first, second = text[:PROMPT].rstrip("=").split("+")
    return float(text[PROMPT:] == str(int(first) + int(second)))


@dataclass
class Batch:
    """Answers to `PROBLEMS` problems, `GROUP` in a row to each."""

    tokens: Tensor  # [answers, PROMPT + ANSWER]
    logprobs: Tensor  # [answers, ANSWER], of the policy that gave them
    version: int  # of that policy: the steps that it had learned
    rewards: Tensor | None = None  # [answers]

    def texts(self) -> list[str]:
        return ["".join(CHARACTERS[token] for token in row) for row in self.tokens.tolist()]


@torch.no_grad()
def answers(policy: Policy, prompts: list[str], version: int) -> Batch:
    rows = [[CHARACTERS.index(character) for character in prompt] for prompt in prompts]
    tokens = torch.tensor(rows).repeat_interleave(GROUP, dim=0)
    logprobs = []
    for _ in range(ANSWER):
        following = policy(tokens)[:, -1]
        chosen = torch.multinomial(following.exp(), 1)
        tokens = torch.cat([tokens, chosen], dim=1)
        logprobs.append(following.gather(1, chosen))
    return Batch(tokens, torch.cat(logprobs, dim=1), version)


def grpo_loss(policy: nn.Module, batch: Batch) -> Tensor:
    """The negative of equation 3 of Shao et al., DeepSeekMath, arXiv:2402.03300.

    The advantage is that of its section 4.1.2: by how many standard deviations a reward exceeds the
    mean of its group. The penalty is its equation 4, an estimate of the divergence from a
    reference: here a policy that knows nothing and guesses evenly, which keeps this one exploring.
    """
    assert batch.rewards is not None
    grouped = batch.rewards.view(-1, GROUP)
    centered = grouped - grouped.mean(dim=1, keepdim=True)
    advantages = (centered / (grouped.std(dim=1, keepdim=True) + 1e-4)).view(-1, 1)

    following = policy(batch.tokens[:, :-1])[:, PROMPT - 1 :]
    logprobs = following.gather(2, batch.tokens[:, PROMPT:, None]).squeeze(2)
    ratio = (logprobs - batch.logprobs).exp()
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    behind = -math.log(len(CHARACTERS)) - logprobs
    loss: Tensor = (KL_WEIGHT * (behind.exp() - behind - 1) - gain).mean()
    return loss


class Judge(Actor):
    @endpoint
    def score(self, texts: list[str]) -> list[float]:
        return [reward(text) for text in texts]


class Generator(Actor):
    def __init__(
        self, weights: SharedState, judges: Service[Judge], replay: ReplayBuffer[Batch]
    ) -> None:
        self.policy = new_policy()
        self.weights, self.judges, self.replay = weights, judges, replay

    @endpoint
    def roll_out(self, prompts: list[str]) -> None:
        """Answer with the newest weights, have the answers judged, put them into the buffer."""
        (version,) = pull(self.weights, self.policy.state_dict()).get()
        assert version is not None
        batch = answers(self.policy, prompts, version)
        batch.rewards = torch.tensor(self.judges.score.call_one(batch.texts()).get())
        self.replay.add(batch, version=version).get()  # waits while the buffer is full


@dataclass
class Report:
    """One step of a trainer."""

    reward: float  # mean over its batch
    age: int  # steps that the policy has learned since it gave these answers


class Trainer(Actor):
    def __init__(self, replay: ReplayBuffer[Batch]) -> None:
        policy = new_policy()
        dist.init_process_group("gloo")  # "nccl" for GPUs
        self.policy = DistributedDataParallel(policy)
        self.optimizer = torch.optim.Adam(policy.parameters(), LEARNING_RATE)
        self.shared = share_state(policy.state_dict(), copy=False)
        self.replay = replay
        self.steps = 0

    @endpoint
    def weights(self) -> SharedState:
        return self.shared

    @endpoint
    def step(self) -> Report:
        (batch,) = self.replay.sample(1, version=self.steps).get()
        assert batch.rewards is not None
        self.optimizer.zero_grad()
        loss: Any = grpo_loss(self.policy, batch)
        loss.backward()  # averages the gradients of all trainers
        with self.shared.writing():  # who pulls meanwhile starts again
            self.optimizer.step()
        self.steps += 1
        return Report(float(batch.rewards.mean()), self.steps - 1 - batch.version)

    def __cleanup__(self, error: Exception | None) -> None:
        dist.destroy_process_group()


async def ask(generators: Service[Generator], seed: int) -> None:
    rng = random.Random(seed)
    while True:
        await generators.roll_out.call_one(problems(rng))


async def learn(trainers: Trainer, steps: int) -> list[list[Report]]:
    return [list((await trainers.step.call()).values()) for _ in range(steps)]


async def run(steps: int) -> tuple[list[list[Report]], float]:
    """Reports of each step, by trainer, and seconds from the first step to the last."""
    # Imported once, then forked; on a busy machine the imports take long.
    configure(preload=["torch", "torch._dynamo"], host_spawn_ready_timeout="120s")
    procs = this_host().spawn_procs({"gpus": TRAINERS})
    await setup_torch_elastic_env_async(procs)
    store = this_host().spawn_procs({"procs": 1})
    replay = ReplayBuffer[Batch](store, TRAINERS * 2, consume=True, max_age=MAX_AGE)
    trainers = procs.spawn("trainers", Trainer, replay)
    weights = await trainers.slice(gpus=0).weights.call_one()
    judges = Service(this_host(), Judge, replicas=1, idempotent=True)
    generators = Service(
        this_host(),
        Generator,
        (weights, judges, replay),
        replicas=GENERATORS,
        idempotent=True,
        in_flight=1,
    )
    await generators.scale(GENERATORS)  # all are ready

    begun = time.perf_counter()
    learning = asyncio.create_task(learn(trainers, steps))
    # One more than there are generators, so that each has its next problems when it has answered.
    asking = [asyncio.create_task(ask(generators, seed)) for seed in range(GENERATORS + 1)]
    done, _ = await asyncio.wait([learning, *asking], return_when=asyncio.FIRST_COMPLETED)
    seconds = time.perf_counter() - begun
    for task in (learning, *asking):
        task.cancel()
    for finished in done:
        finished.result()  # raises what ended a task too early
    await generators.stop(drain=0)
    await judges.stop(drain=0)
    await trainers.stop()
    return learning.result(), seconds


def draw(rewards: list[float], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.plot(rewards, color="#2a6f97")
    axes.set_xlabel("step")
    axes.set_ylabel("right answers")
    axes.set_ylim(0, 1)
    axes.grid(color="#dddddd", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description="GRPO on sums of two digits.")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the rewards into this file")
    options = parser.parse_args()

    reports, seconds = asyncio.run(run(options.steps))
    rewards = [fmean(report.reward for report in step) for step in reports]
    print(" step  right  age of the answers, in steps")
    for step in range(0, len(reports), 25):
        ages = [report.age for some in reports[step : step + 25] for report in some]
        right = fmean(rewards[step : step + 25])
        print(f"{step:5}  {right:5.0%}  {min(ages)} to {max(ages)}  {'#' * round(40 * right)}")
    samples = len(reports) * TRAINERS * PROBLEMS * GROUP
    print(f"\n{samples} answers in {seconds:.1f} s: {samples / seconds:,.0f} per second")
    first, last = fmean(rewards[:10]), fmean(rewards[-50:])
    print(f"right answers in the first 10 steps {first:.0%}, in the last 50 {last:.0%}")
    # How fast it learns differs from run to run, as the order of the batches does.
    assert last > first + 0.2, "the policy has not learned to add"
    if options.plot is not None:
        draw(rewards, options.plot)


if __name__ == "__main__":
    main()
