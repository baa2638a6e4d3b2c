"""`monarch.elastic` with sharded weights and with checkpoints: what a dead rank had comes from
others, or from a folder.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest

pytest.importorskip("torch", reason="elastic training is that of torch")

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from helpers.deaths import Deaths
from helpers.effort import shortened
from monarch.actor import HostMesh, SupervisionError, this_host
from monarch.config import configured
from monarch.elastic import Batches, ElasticGroup, Report, World, checkpoint
from monarch.elastic.world import WorldPlace
from monarch.errors import ElasticError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),
    pytest.mark.timeout(300),
]  # torch's

SAMPLES, BATCH, STEPS = 96, 24, 12


@pytest.fixture(scope="module")
def hosts(_booted: None) -> Iterator[HostMesh]:
    with configured(
        preload=["torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint"]
    ):
        yield this_host()


def nothing(moment: str) -> None:
    pass


class Sharded:
    """Learns to add four numbers.

    All ranks compute the loss of the whole data, too, and report it.
    """

    def __init__(
        self, moment: Callable[[str], None] = nothing, replicas: int = 1, steps: int = STEPS
    ) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        moment("made")
        self.moment = moment
        self.replicas = replicas
        self.stop = steps
        self.inputs = torch.randn(SAMPLES, 4)
        self.targets = self.inputs.sum(1, keepdim=True)
        self.batches = Batches(SAMPLES, BATCH, seed=3)
        self.write = checkpoint.write
        checkpoint.write = self.noted  # type: ignore[assignment]

    def noted(self, state: Any, folder: Path, rank: int) -> checkpoint.CheckpointPart:
        part = self.write(state, folder, rank)
        self.moment("written " + folder.name.split("-")[1])
        return part

    def make(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        return model, torch.optim.Adam(model.parameters(), lr=0.05)

    def train(self, world: World) -> None:
        model, _ = self.make()
        shape = (self.replicas, world.size // self.replicas)
        fully_shard(
            model, mesh=init_device_mesh("cpu", shape, mesh_dim_names=("replicas", "shards"))
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        self.moment(f"rank {world.rank} of world {world.number}")
        world.restore(model=model, optimizer=optimizer)
        for step in world.steps(self.stop):
            self.moment(f"step {step}")
            whole = self.whole(model)
            self.learn(model, optimizer, self.batches.indices(step, world), world.size, step)
            self.moment(f"after {step}")
            world.report(whole)

    def whole(self, model: torch.nn.Module) -> float:
        with torch.no_grad():
            return float((model(self.inputs) - self.targets).square().mean())

    def learn(
        self, model: torch.nn.Module, optimizer: Any, mine: list[int], ranks: int, step: int
    ) -> None:
        loss = (model(self.inputs[mine]) - self.targets[mine]).square().sum() * ranks / BATCH
        optimizer.zero_grad()
        loss.backward()
        self.moment(f"within {step}")
        optimizer.step()


@pytest.fixture(scope="module")
def undisturbed() -> list[float]:
    """The loss before each step, in one process."""
    alone = World(WorldPlace(1, 0, 1, Mock(), True), Mock())
    trainer = Sharded()
    model, optimizer = trainer.make()
    losses = []
    for step in range(STEPS):
        losses.append(trainer.whole(model))
        trainer.learn(model, optimizer, trainer.batches.indices(step, alone), 1, step)
    return losses


def check(reports: list[Report], undisturbed: list[float]) -> None:
    """Every rank that has reported any step was where it would have been."""
    for report in reports:
        assert math.isclose(report.value, undisturbed[report.step], rel_tol=1e-3), report


def test_killed_ranks_of_two_sharded_replicas_are_replaced_and_no_step_is_lost(
    hosts: HostMesh, tmp_path: Path, undisturbed: list[float]
) -> None:
    random = Random(20)
    at = {
        f"{random.choice(['step', 'within', 'after'])} {step}": [0]
        for step in sorted(random.sample(range(STEPS), shortened(2, 1)))
    }
    print(at)
    deaths = Deaths(tmp_path, at)
    group = ElasticGroup(hosts, partial(Sharded, deaths, 2), ranks=4, min_ranks=4)
    reports = list(group.run())
    assert deaths.all_died()
    check(reports, undisturbed)
    assert {report.step for report in reports} == set(range(STEPS))
    told = [(report.rank, report.step) for report in reports]
    assert len(set(told)) == len(told), "a step was done twice"


class Told(Sharded):
    """Deaths know which rank it is."""

    def learn(
        self, model: torch.nn.Module, optimizer: Any, mine: list[int], ranks: int, step: int
    ) -> None:
        self.moment(f"step {step} of rank {dist.get_rank()}")
        super().learn(model, optimizer, mine, ranks, step)


def test_ranks_that_read_from_one_that_dies_are_not_lost_with_it(
    hosts: HostMesh, tmp_path: Path, undisturbed: list[float]
) -> None:
    deaths = Deaths(tmp_path, {"step 3 of rank 1": [0], "rank 2 of world 2": [0]})

    def moment(name: str) -> None:
        deaths(name)
        # ended by its death
        while name.endswith("of world 2") and not (tmp_path / "rank 2 of world 2.0").exists():
            time.sleep(0.001)

    reports = list(
        ElasticGroup(hosts, partial(Told, moment, 2), ranks=4, min_ranks=4, max_losses=2).run()
    )
    assert deaths.all_died()
    check(reports, undisturbed)
    assert {report.step for report in reports} == set(range(STEPS))


def test_what_a_trainer_hears_of_the_death_of_another_actor_is_an_error_of_its_own(
    hosts: HostMesh,
) -> None:
    class Deserted(Sharded):
        def train(self, world: World) -> None:
            raise SupervisionError("the loader is gone")

    with pytest.raises(SupervisionError, match="the loader is gone"):
        list(ElasticGroup(hosts, Deserted, ranks=1, max_losses=0).run())


class Torn(Sharded):
    """One rank dies as it is about to change its weights, and one of the others hears of that too
    early.
    """

    def learn(
        self, model: torch.nn.Module, optimizer: Any, mine: list[int], ranks: int, step: int
    ) -> None:
        barrier, rank = dist.barrier, dist.get_rank()
        folder: Path = self.moment.folder  # type: ignore[attr-defined]  # `Deaths`

        def torn() -> None:
            barrier()
            (folder / f"passed.{rank}").touch()
            if rank == 3:
                # one that dies within the barrier would keep others from getting out of it
                while not all((folder / f"passed.{other}").exists() for other in range(3)):
                    time.sleep(0.001)
                self.moment("prepared")
            if rank == 1:
                raise RuntimeError("connection closed by peer")

        if step == 5 and not (folder / "prepared.0").exists():
            dist.barrier = torn  # type: ignore[assignment]
        try:
            super().learn(model, optimizer, mine, ranks, step)
        finally:
            dist.barrier = barrier


def test_a_rank_completes_a_step_that_others_have_done_if_only_the_agreement_failed(
    hosts: HostMesh, tmp_path: Path, undisturbed: list[float]
) -> None:
    deaths = Deaths(tmp_path, {"prepared": [0]})
    reports = list(ElasticGroup(hosts, partial(Torn, deaths, 2), ranks=4, min_ranks=4).run())
    assert deaths.all_died()
    check(reports, undisturbed)
    assert {report.step for report in reports} | {5} == set(range(STEPS))
    assert not [report for report in reports if report.step == 5 and report.world == 2], (
        "it was done again"
    )


class Patient(Sharded):
    """Waits in one step of a world for the next world, with another number of ranks."""

    def train(self, world: World) -> None:
        self.world = world
        super().train(world)

    def learn(
        self, model: torch.nn.Module, optimizer: Any, mine: list[int], ranks: int, step: int
    ) -> None:
        super().learn(model, optimizer, mine, ranks, step)
        if (step, ranks) in ((4, 1), (8, 3)):
            # ended by the new ranks, or with the program
            while self.world._end is None and not self.world.over:
                time.sleep(0.01)


def test_shards_are_laid_out_anew_when_a_group_grows_and_shrinks(
    hosts: HostMesh, undisturbed: list[float]
) -> None:
    group = ElasticGroup(hosts, Patient, ranks=1)
    reports = []
    for report in group.run():
        reports.append(report)
        if (report.step, report.rank, report.size) in ((3, 0, 1), (7, 0, 3)):
            group.resize(3 if report.size == 1 else 2)
    check(reports, undisturbed)
    sizes = {report.step: report.size for report in reports}
    fewer = min(step for step, size in sizes.items() if size == 2)
    assert fewer in (8, 9)  # whether a rank had begun step 8 when the others were asked
    assert sizes == {step: 1 if step < 5 else 3 if step < fewer else 2 for step in range(STEPS)}


def test_a_shard_that_no_other_rank_has_is_lost_without_a_checkpoint(
    hosts: HostMesh, tmp_path: Path
) -> None:
    deaths = Deaths(tmp_path, {"step 3": [0]})
    with pytest.raises(
        ElasticError, match=r"do not have all of the state of step .* no checkpoints"
    ):
        list(ElasticGroup(hosts, partial(Sharded, deaths), ranks=2).run())
    assert deaths.all_died()


def test_training_goes_on_from_the_last_whole_checkpoint(
    hosts: HostMesh, tmp_path: Path, undisturbed: list[float]
) -> None:
    folder = tmp_path / "checkpoints"
    deaths = Deaths(tmp_path, {"within 4": [0], "written 6": [1], "after 8": [0, 1]})
    options: Any = {"ranks": 2, "min_ranks": 2, "checkpoint": folder, "checkpoint_every": 3}
    reports = list(ElasticGroup(hosts, partial(Sharded, deaths), **options).run())
    assert deaths.all_died()
    check(reports, undisturbed)
    firsts: dict[int, int] = {}
    for report in reports:
        firsts.setdefault(report.world, report.step)
    begins = [firsts[world] for world in sorted(firsts)]
    # checkpoints are written beside the training: the one of step 3 may not be whole yet when the
    # first rank dies
    assert begins in ([0, first, 3, third] for first in (0, 3) for third in (3, 6)), begins
    assert [path.name for path in sorted(folder.glob("step-*"))] == [
        "step-00000009",
        "step-00000012",
    ]
    more = ElasticGroup(hosts, partial(Sharded, steps=STEPS + 1), **{**options, "ranks": 3})
    resumed = list(more.run())
    assert {(report.step, report.size) for report in resumed} == {(STEPS, 3)}
    assert resumed[0].value < undisturbed[-1] * 1.2
