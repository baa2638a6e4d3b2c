"""Trainers: GRPO, on ranks that may die.

A step's batch has the step's number. Whoever asks the buffer for that number gets the same groups,
so a step that is done again, because a rank has died, learns from the same: none is lost, and none
is used twice.
"""

import logging
import os
import pickle
import time
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from monarch.actor import get_meter
from monarch.elastic import StateBoard, StatePublisher, World
from monarch.telemetry import step as mark_step

from .model import answer_logprobs, learned, make_policy
from .plan import Plan
from .rollouts import Buffer, Group, Rollouts


@dataclass(frozen=True)
class Report:
    """One step."""

    reward: float  # mean of the batch
    age: float  # steps from the weights that chose a byte to those that learn from it; mean
    mixed: float  # part of the answers that several versions of the weights had a share in
    waited: float  # seconds, for the batch
    used: list[int]  # numbers of its groups
    pids: list[int]  # of the trainers


def grpo_loss(policy: nn.Module, groups: list[Group], tokens: int, plan: Plan) -> Tensor:
    """The clipped objective of Shao et al., arXiv:2402.03300, summed over bytes, by their count.

    The advantage of an answer is by how many standard deviations its reward exceeds the mean of its
    group. `old` is, for each byte, what the weights that chose it gave it.
    """
    rewards = torch.tensor([group.rewards for group in groups])
    advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    pairs = [(group.task.prompt, answer) for group in groups for answer in group.answers]
    lengths = torch.tensor([len(answer.text) for _, answer in pairs])
    gain = advantages.flatten().repeat_interleave(lengths)
    old = torch.tensor([each for _, answer in pairs for each in answer.logprobs])
    logprobs = answer_logprobs(policy, [(prompt, answer.text) for prompt, answer in pairs])
    ratio = (logprobs - old).exp()
    if plan.correct:  # weighs each byte, and clips the weight alone: old answers teach, but little
        objective = ratio.detach().clamp(max=2.0) * gain * logprobs
    else:
        objective = torch.minimum(ratio * gain, ratio.clamp(1 - plan.clip, 1 + plan.clip) * gain)
    return -objective.sum() / tokens


class Training:
    """What a rank does: `ElasticGroup` makes one in each process."""

    def __init__(
        self,
        plan: Plan,
        base: dict[str, Tensor],
        buffer: Buffer,
        board: StateBoard,
        rollouts: Rollouts,
    ) -> None:
        self.plan, self.base = plan, base
        self.buffer, self.board, self.rollouts = buffer, board, rollouts
        self.reward = get_meter().create_gauge("rl.reward", description="mean of the last batch")
        self.age = get_meter().create_gauge("rl.age", unit="steps", description="staleness")
        self.wait = get_meter().create_counter("rl.wait", unit="s", description="for samples")

    # region train
    def train(self, world: World) -> None:
        plan, policy = self.plan, make_policy(self.plan, self.base)
        if plan.fsdp:  # laid out for the ranks of this world
            fully_shard(policy, mesh=init_device_mesh("cpu", (world.size,)))
        wanted = [each for each in policy.parameters() if each.requires_grad]
        optimizer = torch.optim.AdamW(wanted, plan.learning_rate, weight_decay=0.0)
        world.restore(model=policy, optimizer=optimizer)
        trained = learned(policy)
        publisher = StatePublisher(self.board, trained, world=world, sharded=plan.fsdp)
        policy = policy if plan.fsdp else DistributedDataParallel(policy)
        self.pids = world.gather(os.getpid())
        if world.rank == 0:
            self.rollouts.progress.broadcast(world.step, [])
        for step in world.steps(plan.steps):
            mark_step(step, total=plan.steps, samples=plan.groups * plan.answers // world.size)
            self._save(world, step)
            began = time.perf_counter()
            groups = self._batch(world, step)
            waited = time.perf_counter() - began
            tokens = sum(len(answer.text) for group in groups for answer in group.answers)
            mine = groups[world.part(len(groups))]
            # DDP and FSDP take the mean over ranks of what is a sum
            loss = world.size * grpo_loss(policy, mine, tokens, plan)
            optimizer.zero_grad()
            if world.rank == 0:  # before the gradients meet: no step is done without a report
                self._report(world, step, groups, waited)
            loss.backward()  # type: ignore[no-untyped-call]
            with publisher.writing():
                optimizer.step()

    def _batch(self, world: World, step: int) -> list[Group]:
        """The groups of this step, the same on all ranks."""
        drawn: list[Group] = []
        if world.rank == 0:
            count = self.plan.groups
            drawn = world.ask(lambda: self.buffer.sample(count, step, order="oldest", batch=step))
        return sorted(world.gather(drawn)[0], key=lambda group: group.task.number)

    # endregion

    def _report(self, world: World, step: int, groups: list[Group], waited: float) -> None:
        versions = [answer.versions for group in groups for answer in group.answers]
        reward = fmean(each for group in groups for each in group.rewards)
        age = fmean(step - version for each in versions for version in each)
        mixed = fmean(len(set(each)) > 1 for each in versions)
        self.reward.set(reward)
        self.age.set(age)
        self.wait.add(waited)
        used = [group.task.number for group in groups]
        self.rollouts.progress.broadcast(step + 1, used)
        world.report(Report(reward, age, mixed, waited, used, self.pids))

    # region save
    def _save(self, world: World, step: int) -> None:
        """What is not on the trainers, beside the checkpoint of the weights before this step."""
        if world.rank or step == 0 or step % self.plan.checkpoint_every:
            return
        # Batches of steps that may be done again stay in the buffer.
        folder, again = self.plan.checkpoint, [step - 1]
        if folder is not None:
            again = [int(each.name.removeprefix("step-")) for each in folder.glob("step-*")]
        world.ask(lambda: self.buffer.forget(min(again, default=0)))
        if folder is None:
            return
        state = world.ask(lambda: self.rollouts.state.call_one())
        try:
            (folder / "unfinished").write_bytes(pickle.dumps(state))
            (folder / "unfinished").replace(folder / f"roles-{step:08}")
        except OSError as error:
            logging.getLogger(__name__).warning("step %d: roles not saved: %s", step, error)

    # endregion
