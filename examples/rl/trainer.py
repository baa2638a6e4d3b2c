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
from pathlib import Path
from statistics import fmean

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from monarch.actor import get_meter
from monarch.elastic import World
from monarch.telemetry import step as mark_step

from .model import LENGTH, make_policy, rows
from .plan import Plan
from .rollouts import Buffer, Group, Rollouts
from .weights import Board, Publisher

LOGGER = logging.getLogger("examples.rl")


@dataclass(frozen=True)
class Report:
    """One step."""

    reward: float  # mean of the batch
    age: float  # steps from the weights that chose a byte to those that learn from it; mean
    mixed: float  # part of the answers that several versions of the weights had a share in
    waited: float  # seconds, for the batch
    used: list[int]  # numbers of its groups
    pids: list[int]  # of the trainers


# region loss
def grpo_loss(policy: nn.Module, groups: list[Group], tokens: int, plan: Plan) -> Tensor:
    """The clipped objective of Shao et al., arXiv:2402.03300, summed over bytes, by their count.

    The advantage of an answer is by how many standard deviations its reward exceeds the mean of its
    group. `old` is, for each byte, what the weights that chose it gave it.
    """
    texts, advantages, old, chosen = [], [], [], []
    for group in groups:
        rewards = torch.tensor(group.rewards)
        advantages.append((rewards - rewards.mean()) / (rewards.std() + 1e-4))
        for answer in group.answers:
            texts.append(group.task.prompt + answer.text)
            begin, end = len(group.task.prompt) - 1, len(texts[-1]) - 1
            old.append([0.0] * begin + answer.logprobs + [0.0] * (LENGTH - 1 - end))
            chosen.append([begin <= place < end for place in range(LENGTH - 1)])
    data, mask, past = rows(texts), torch.tensor(chosen), torch.tensor(old)
    logprobs = torch.log_softmax(policy(data[:, :-1]), dim=-1)
    logprobs = logprobs.gather(2, data[:, 1:, None]).squeeze(2)
    gain = torch.cat(advantages)[:, None]
    ratio = (logprobs - past).exp()
    if plan.correct:  # weighs each byte, and clips the weight alone: old answers teach, but little
        objective = ratio.detach().clamp(max=2.0) * gain * logprobs
    else:
        objective = torch.minimum(ratio * gain, ratio.clamp(1 - plan.clip, 1 + plan.clip) * gain)
    loss: Tensor = -objective[mask].sum() / tokens
    return loss


# endregion


class Training:
    """What a rank does: `ElasticGroup` makes one in each process."""

    def __init__(
        self,
        plan: Plan,
        base: dict[str, Tensor],
        buffer: Buffer,
        board: Board,
        rollouts: Rollouts,
    ) -> None:
        self.plan, self.base = plan, base
        self.buffer, self.board, self.rollouts = buffer, board, rollouts
        self.policy = make_policy(plan, base)
        self.optimizer = self._optimizer()
        self.reward = get_meter().create_gauge("rl.reward", description="mean of the last batch")
        self.age = get_meter().create_gauge("rl.age", unit="steps", description="staleness")
        self.wait = get_meter().create_counter("rl.wait", unit="s", description="for samples")

    def _optimizer(self) -> torch.optim.Optimizer:
        wanted = [each for each in self.policy.parameters() if each.requires_grad]
        return torch.optim.AdamW(wanted, self.plan.learning_rate, weight_decay=0.0)

    # region train
    def train(self, world: World) -> None:
        if self.plan.fsdp:  # laid out for the ranks of this world
            mesh = init_device_mesh("cpu", (world.size,))
            self.policy = make_policy(self.plan, self.base)
            fully_shard(self.policy, mesh=mesh)
            self.optimizer = self._optimizer()
        world.restore(model=self.policy, optimizer=self.optimizer)
        policy = self.policy if self.plan.fsdp else DistributedDataParallel(self.policy)
        self.pids = [0] * world.size
        dist.all_gather_object(self.pids, os.getpid())
        publisher = Publisher(world, self.policy, self.board, self.plan.fsdp)
        if world.rank == 0:
            self.rollouts.progress.broadcast(world.step, [])
        for step in world.steps(self.plan.steps):
            mark_step(step)
            if world.rank == 0:
                self._save(world, step)
            began = time.perf_counter()
            groups = self._batch(world, step)
            waited = time.perf_counter() - began
            tokens = sum(len(answer.text) for group in groups for answer in group.answers)
            mine = groups[world.part(len(groups))]
            # DDP and FSDP take the mean over ranks of what is a sum
            loss = world.size * grpo_loss(policy, mine, tokens, self.plan)
            self.optimizer.zero_grad()
            if world.rank == 0:  # before the gradients meet: no step is done without a report
                self._report(world, step, groups, waited)
            loss.backward()  # type: ignore[no-untyped-call]
            with publisher.writing(step):
                self.optimizer.step()

    def _batch(self, world: World, step: int) -> list[Group]:
        """The groups of this step, the same on all ranks."""
        found: list[list[Group] | None] = [None]
        if world.rank == 0:
            count = self.plan.groups
            drawn = world.ask(lambda: self.buffer.sample(count, step, order="oldest", batch=step))
            found = [sorted(drawn, key=lambda group: group.task.number)]
        dist.broadcast_object_list(found, src=0)
        assert found[0] is not None
        return found[0]

    # endregion

    def _report(self, world: World, step: int, groups: list[Group], waited: float) -> None:
        answers = [answer for group in groups for answer in group.answers]
        reward = fmean(each for group in groups for each in group.rewards)
        age = fmean(step - version for answer in answers for version in answer.versions)
        mixed = fmean(len(set(answer.versions)) > 1 for answer in answers)
        self.reward.set(reward)
        self.age.set(age)
        self.wait.add(waited)
        used = [group.task.number for group in groups]
        self.rollouts.progress.broadcast(step + 1, used)
        world.report(Report(reward, age, mixed, waited, used, self.pids))

    # region save
    def _save(self, world: World, step: int) -> None:
        """What is not on the trainers, beside the checkpoint of the weights before this step."""
        if step == 0 or step % self.plan.checkpoint_every:
            return
        folder = self.plan.checkpoint
        # Batches of steps that may be done again stay in the buffer.
        whole = folder.glob("step-*") if folder is not None else [Path(f"step-{step - 1}")]
        oldest = min((int(each.name.removeprefix("step-")) for each in whole), default=0)
        world.ask(lambda: self.buffer.forget(oldest))
        if folder is None:
            return
        state = world.ask(lambda: self.rollouts.state.call_one())
        try:
            (folder / "unfinished").write_bytes(pickle.dumps(state))
            (folder / "unfinished").replace(folder / f"roles-{step:08}")
        except OSError as error:
            LOGGER.warning("step %d: roles not saved: %s", step, error)

    # endregion
