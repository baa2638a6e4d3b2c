"""`monarch.elastic`: ranks are killed at all moments that hurt, and the training is the one that it
would have been.

The trainers kill themselves, at points of their own code, so that each death is where it is meant
to be; a file remembers that.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
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

from helpers.deaths import Deaths
from helpers.workers import attached_cluster
from monarch.actor import HostMesh
from monarch.config import configured
from monarch.elastic import Batches, ElasticGroup, Report, World, checkpoint, member
from monarch.elastic.world import WorldPlace
from monarch.errors import ElasticError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.may_keep("threads", "descriptors"),
    pytest.mark.timeout(180),
]  # torch's

SAMPLES, BATCH, STEPS = 96, 24, 16


@pytest.fixture(scope="module")
def hosts(_booted: None) -> Iterator[HostMesh]:
    """One, on which procs that stand still are soon found."""
    with attached_cluster(1, env={"MONARCH_HEARTBEAT_TIMEOUT": "2s"}) as cluster:
        # DistributedDataParallel imports it, for over a second
        with configured(preload=["torch._dynamo"]):
            yield cluster.hosts


class Watched(torch.optim.Adam):
    """An optimizer of whose travels somebody wants to know."""

    moment: Any = None

    def state_dict(self) -> Any:
        self.moment("lending")
        return super().state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.moment("taking")
        super().load_state_dict(state)


def _nothing(moment: str = "") -> None:
    pass


class Regression:
    """Learns to add four numbers.

    Each rank computes the loss of the whole data, too, which is what it reports.
    """

    def __init__(self, moment: Callable[[str], None] = _nothing, steps: int = STEPS) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        moment("made")
        self.moment = moment
        self.stop = steps
        self.inputs = torch.randn(SAMPLES, 4)
        self.targets = self.inputs.sum(1, keepdim=True)
        self.batches = Batches(SAMPLES, BATCH, seed=3)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        )
        self.optimizer = Watched(self.model.parameters(), lr=0.05)
        self.optimizer.moment = moment
        member.lend = partial(self.lend, member.lend)  # type: ignore[attr-defined]
        if "connecting" in getattr(moment, "at", ()):
            dist.init_process_group = partial(self.connect, dist.init_process_group)

    def lend(self, original: Any, state: Any) -> Any:
        self.moment("sharing")
        return original(state)

    def connect(self, original: Any, *args: Any, **options: Any) -> None:
        if options["world_size"] > 1:
            self.moment("connecting")
        original(*args, **options)

    def train(self, world: World) -> None:
        self.moment("train")
        self.restore(world)
        model = torch.nn.parallel.DistributedDataParallel(self.model)
        for step in world.steps(self.stop):
            self.moment(f"step {step}")
            whole = self.whole()
            within = partial(self.moment, f"within {step}")
            self.learn(model, self.batches.indices(step, world), world.size, within)
            self.moment(f"after {step}")
            world.report((whole, os.getpid()))

    def restore(self, world: World) -> None:
        world.restore(model=self.model, optimizer=self.optimizer)

    def whole(self) -> float:
        with torch.no_grad():
            return float((self.model(self.inputs) - self.targets).square().mean())

    def learn(
        self, model: torch.nn.Module, mine: list[int], ranks: int, between: Callable[[], None]
    ) -> None:
        loss = (model(self.inputs[mine]) - self.targets[mine]).square().sum() * ranks / BATCH
        self.optimizer.zero_grad()
        loss.backward()
        between()
        self.optimizer.step()


@pytest.fixture(scope="module")
def undisturbed() -> list[float]:
    """The loss before each step, in one process."""
    alone = World(WorldPlace(1, 0, 1, Mock(), True), Mock())
    trainer = Regression()
    losses = []
    for step in range(STEPS):
        losses.append(trainer.whole())
        trainer.learn(trainer.model, trainer.batches.indices(step, alone), 1, _nothing)
    return losses


def check(reports: list[Report], undisturbed: list[float], ranks: int) -> None:
    """Every rank that has reported any step was where it would have been; all of them have, at the
    end.
    """
    for report in reports:
        assert math.isclose(report.value[0], undisturbed[report.step], rel_tol=1e-3), report
    assert {report.step for report in reports} == set(range(STEPS))
    last = [report for report in reports if report.step == STEPS - 1]
    assert {report.rank for report in last} == set(range(ranks)), last


def train(hosts: HostMesh, deaths: Deaths, **options: Any) -> list[Report]:
    reports = list(ElasticGroup(hosts, partial(Regression, deaths), **options).run())
    assert deaths.all_died(), sorted(path.name for path in deaths.folder.iterdir())
    return reports


def test_killed_ranks_are_replaced_and_the_loss_is_that_of_the_undisturbed_run(
    hosts: HostMesh, tmp_path: Path, undisturbed: list[float]
) -> None:
    random = Random(20)
    steps = sorted(random.sample(range(1, STEPS), 4))
    deaths = {
        f"{random.choice(['step', 'within', 'after'])} {step}": range(random.choice([1, 1, 2]))
        for step in steps
    }
    print(deaths)
    reports = train(hosts, Deaths(tmp_path, deaths), ranks=3, min_ranks=3)
    check(reports, undisturbed, 3)
    assert {report.size for report in reports} == {3}


@pytest.mark.slow
def test_ranks_that_die_while_a_world_is_formed_are_replaced_as_well(
    hosts: HostMesh, tmp_path: Path, undisturbed: list[float]
) -> None:
    deaths = {
        "step 3": [0],
        "made": [3],
        "lending": [1],
        "sharing": [0],
        "taking": [0],
        "connecting": [4],
        "train": [3],
    }
    reports = train(hosts, Deaths(tmp_path, deaths), ranks=3, min_ranks=3, max_losses=20)
    check(reports, undisturbed, 3)


def test_with_fewer_ranks_it_goes_on_and_the_loss_stays(
    hosts: HostMesh, tmp_path: Path, undisturbed: list[float]
) -> None:
    # who is to replace them dies
    deaths = Deaths(tmp_path, {"within 2": [0, 1], "made": range(4, 100)})
    group = ElasticGroup(hosts, partial(Regression, deaths), ranks=4, min_ranks=2, max_losses=3)
    reports = list(group.run())
    check(reports, undisturbed, 2)
    sizes = {report.size for report in reports}
    assert (max(sizes), min(sizes)) == (4, 2)


def test_a_rank_that_raises_ends_the_training_of_all_with_its_error(hosts: HostMesh) -> None:
    def leave_later(self: World) -> None:
        if self.rank:
            self._over = True

    class Wrong(Regression):
        def train(self, world: World) -> None:
            self.restore(world)
            # rank 0 does not know why its collective ends
            World.leave = leave_later  # type: ignore[method-assign]
            for _ in world.steps(STEPS):
                group = dist.new_group()
                if world.rank == 1:
                    raise KeyError("no such column")
                dist.barrier(group)

    with pytest.raises(KeyError, match="no such column"):
        list(ElasticGroup(hosts, Wrong, ranks=3).run())


def test_a_group_that_keeps_dying_gives_up_and_says_why(hosts: HostMesh) -> None:
    class Doomed(Regression):
        def learn(
            self, model: torch.nn.Module, mine: list[int], ranks: int, between: Callable[[], None]
        ) -> None:
            if os.environ["RANK"] == "1":
                os.kill(os.getpid(), signal.SIGKILL)
            super().learn(model, mine, ranks, between)

    with pytest.raises(
        ElasticError, match=r"were lost with no step done .* the last: killed, signal 9"
    ):
        list(ElasticGroup(hosts, Doomed, ranks=2, min_ranks=2, max_losses=1).run())


def test_when_all_ranks_have_died_it_does_not_begin_again_from_nothing(
    hosts: HostMesh, tmp_path: Path
) -> None:
    deaths = Deaths(tmp_path, {"step 3": [0]})
    reports: list[Report] = []
    with pytest.raises(
        ElasticError, match=r"no checkpoints; the last that was lost: killed, signal 9"
    ):
        reports.extend(ElasticGroup(hosts, partial(Regression, deaths), ranks=1).run())
    assert deaths.all_died()


def test_two_programs_do_not_write_to_one_folder_of_checkpoints(
    hosts: HostMesh, tmp_path: Path
) -> None:
    group = ElasticGroup(hosts, Regression, ranks=1, checkpoint=tmp_path)
    with (
        checkpoint.claimed(tmp_path),
        pytest.raises(ElasticError, match="another program that still runs"),
    ):
        list(group.run())
    with checkpoint.claimed(tmp_path):
        pass  # it was let go


def test_what_a_trainer_is_connected_to_outlives_its_world(hosts: HostMesh, tmp_path: Path) -> None:
    class Client(Regression):
        line: Any = None

        def train(self, world: World) -> None:
            if self.line is None:
                with socket.create_server(("127.0.0.1", 0)) as server:
                    self.line = socket.create_connection(server.getsockname())
                    self.peer = server.accept()[0]
            super().train(world)

        def whole(self) -> float:
            self.line.sendall(b"?")
            assert self.peer.recv(1) == b"?"
            return super().whole()

    deaths = Deaths(tmp_path, {"within 3": [0]})
    reports = list(ElasticGroup(hosts, partial(Client, deaths), ranks=2).run())
    assert deaths.all_died()
    assert {report.step for report in reports} == set(range(STEPS))


def test_a_rank_that_stands_still_counts_as_dead_and_its_collective_ends(
    hosts: HostMesh, tmp_path: Path, undisturbed: list[float]
) -> None:
    reports = train(
        hosts, Deaths(tmp_path, {"within 4": [1]}, signal.SIGSTOP), ranks=3, min_ranks=2
    )
    check(
        reports, undisturbed, {report.size for report in reports if report.step == STEPS - 1}.pop()
    )


def test_a_step_that_was_broken_off_behind_its_optimizer_is_not_done_twice(
    hosts: HostMesh, tmp_path: Path, undisturbed: list[float]
) -> None:
    class TalksAfterwards(Regression):
        def learn(
            self, model: torch.nn.Module, mine: list[int], ranks: int, between: Callable[[], None]
        ) -> None:
            super().learn(model, mine, ranks, _nothing)
            between()
            dist.barrier()

    deaths = Deaths(tmp_path, {"within 5": [0]})
    reports = list(
        ElasticGroup(hosts, partial(TalksAfterwards, deaths), ranks=3, min_ranks=3).run()
    )
    assert deaths.all_died()
    # whoever had changed its weights has done step 5, but did not come to report it
    assert {report.step for report in reports} | {5} == set(range(STEPS))
    for report in reports:
        assert math.isclose(report.value[0], undisturbed[report.step], rel_tol=1e-3), report


def test_a_group_grows_and_shrinks_between_two_steps(hosts: HostMesh) -> None:
    class Patient(Regression):
        def train(self, world: World) -> None:
            self.restore(world)
            for _ in world.steps(world.step + 3 if world.size == 2 else 10**9):
                assert world.gather(world.rank) == [*range(world.size)]
                world.report(None)

    group = ElasticGroup(hosts, Patient, ranks=1)
    reports: list[Report] = []
    for report in group.run():
        reports.append(report)
        if len(reports) == 1:
            group.resize(3)
        elif report.size == 3 and reports[-2].size == 1:
            group.resize(2)
    assert {report.size for report in reports} == {1, 2, 3}
    told = sorted((report.step, report.rank, report.size) for report in reports)
    sizes = {step: size for step, _, size in told}
    assert sorted(sizes) == list(range(len(sizes))), "a step was left out"
    assert told == [(step, rank, size) for step, size in sizes.items() for rank in range(size)], (
        "a step was cut in two"
    )


def test_a_world_ends_for_a_change_that_came_while_it_was_formed(
    hosts: HostMesh, tmp_path: Path
) -> None:
    def lend(moment: str) -> None:
        (tmp_path / moment).touch()
        # ended by the program, or with it
        while moment == "lending" and not (tmp_path / "resized").exists():
            time.sleep(0.01)

    class Patient(Regression):
        def train(self, world: World) -> None:
            self.restore(world)
            for _ in world.steps(10**9 if world.size == 2 else world.step + 1):
                dist.barrier()
            world.report(None)

    def resize() -> None:
        while not (tmp_path / "lending").exists() and not over.wait(0.01):
            pass
        group.resize(1)
        (tmp_path / "resized").touch()

    over = threading.Event()
    group = ElasticGroup(hosts, partial(Patient, lend), ranks=2)
    thread = threading.Thread(target=resize)
    thread.start()
    try:
        assert [report.size for report in group.run()] == [1]
    finally:
        over.set()
        thread.join()


def test_a_loop_that_is_left_early_ends_the_ranks_and_what_makes_no_sense_is_refused(
    hosts: HostMesh,
) -> None:
    with pytest.raises(ValueError, match="min_ranks=3: expected 1 to ranks=2"):
        ElasticGroup(hosts, Regression, ranks=2, min_ranks=3)
    with pytest.raises(TypeError, match="expected a HostMesh"):
        ElasticGroup(hosts.spawn_procs, Regression, ranks=2)  # type: ignore[arg-type]
    for wrong in (
        {"ranks": 1.5},
        {"ranks": 0},
        {"max_losses": -1},
        {"timeout": "x"},
        {"timeout": 0},
    ):
        with pytest.raises((TypeError, ValueError), match=f"{next(iter(wrong))} must be .*, got "):
            ElasticGroup(hosts, Regression, **{"ranks": 2, **wrong})  # type: ignore[arg-type]
    group = ElasticGroup(hosts, Regression, ranks=2)
    with pytest.raises(RuntimeError, match=r"run\(\) comes first"):
        group.resize(3)
    with pytest.raises(TypeError, match="ranks must be an int, got 2.5"):
        group.resize(2.5)  # type: ignore[arg-type]
    reports = group.run()
    next(reports)
    with pytest.raises(RuntimeError, match="runs once"):
        group.run()
    reports.close()  # as a `break` does; that nothing is left is checked for each test
    with pytest.raises(RuntimeError, match="the training is over"):
        group.resize(3)


def test_a_constructor_that_raises_is_told_at_once(hosts: HostMesh) -> None:
    class Broken(Regression):
        def __init__(self) -> None:
            raise FileNotFoundError("data.bin")

    with pytest.raises(FileNotFoundError, match=r"data\.bin"):
        list(ElasticGroup(hosts, Broken, ranks=2).run())
