"""Faults that tests of programs ask for: by class, rank, chance and time, in-process and for real."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

from helpers.workers import workers
from monarch.actor import (
    Actor,
    MeshFailure,
    SupervisionError,
    attach_to_workers,
    endpoint,
    this_host,
)
from monarch.config import configured
from monarch.supervision import OneForOne
from monarch.testing.inject import (
    ActorFailurePolicy,
    Crash,
    DroppedLink,
    Fail,
    Hang,
    Injection,
    LostHost,
    Slow,
    inject_actor_failures,
)

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults
    from monarch.testing import LocalHosts


class Trainer(Actor):
    def __init__(self, start: int = 0) -> None:
        self.steps = start

    @endpoint
    def step(self) -> int:
        self.steps += 1
        return self.steps


class AsyncTrainer(Actor):
    @endpoint
    async def step(self) -> str:
        return "done"


class Owner(Actor):
    """Remembers what has happened to the actors that it owns."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, bool]] = []
        self.trainers = this_host().spawn_procs().spawn("trainers", Trainer)

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.failures.append((failure.cause, failure.is_injected))
        return True

    @endpoint
    def step(self) -> str:
        return type(self.trainers.step.call_one().exception()).__name__

    @endpoint
    def told(self) -> list[tuple[str, bool]]:
        return self.failures


@pytest.mark.both
@pytest.mark.parametrize(("fault", "cause"), [(Fail, "exception"), (Crash, "killed")])
@pytest.mark.parametrize("cls", [Trainer, AsyncTrainer])
def test_a_rank_fails_and_its_owner_is_told_that_it_was_injected(
    spawn: Spawn, faults: Faults, fault: Any, cause: str, cls: Any
) -> None:
    procs = spawn(2)
    with Injection({cls: fault(ranks=[1])}):
        trainers = procs.spawn("trainers", cls)
    with pytest.raises(SupervisionError):
        trainers.step.call().get()
    (failure,) = faults.wait_for(1)
    assert (failure.ranks, failure.cause, failure.is_injected) == ([1], cause, True)
    assert trainers.slice(gpus=0).step.call_one().get() in (2, "done")


def test_a_failure_that_was_not_injected_says_so(spawn: Spawn, faults: Faults) -> None:
    procs = spawn()
    procs.kill().get()
    assert not faults.wait_for(1)[0].is_injected


def test_a_hang_lasts_for_ever_and_other_ranks_go_on(monarch_local: LocalHosts) -> None:
    for cls in (Trainer, AsyncTrainer):
        with Injection({cls: Hang(ranks=[0])}):
            trainers: Any = monarch_local.spawn_procs().spawn("trainers", cls)
        hanging = trainers.slice(hosts=0).step.call_one()
        assert trainers.slice(hosts=1).step.call_one().get() in (1, "done")
        monarch_local.advance(3600)
        assert not hanging.done()


def test_a_slow_rank_is_slow_each_time_and_from_a_moment_on(monarch_local: LocalHosts) -> None:
    for cls in (Trainer, AsyncTrainer):
        with Injection({cls: Slow(30.0, ranks=[1], after=100.0)}):
            trainers: Any = monarch_local.spawn_procs().spawn("trainers", cls)
        trainers.step.call().get()
        began = monarch_local.now
        monarch_local.advance(100)
        for times in range(1, 3):
            trainers.step.call().get()
            assert monarch_local.now - began == pytest.approx(100 + 30 * times, abs=1)


def test_a_seed_decides_which_calls_are_hit(monarch_local: LocalHosts) -> None:
    def hits(seed: int) -> list[int]:
        with Injection({Trainer: Slow(1.0, probability=0.3)}, seed=seed) as injection:
            trainer = monarch_local.spawn_procs().spawn("trainers", Trainer).slice(hosts=0)
        assert injection.seed == seed
        began, took = monarch_local.now, []
        for _ in range(20):
            trainer.step.call_one().get()
            took.append(round(monarch_local.now - began))
        return took

    assert hits(1) == hits(1) != hits(2)
    assert 1 <= hits(1)[-1] <= 15


def test_a_fault_hits_a_rank_once_and_not_after_a_restart_unless_it_is_to(
    monarch_local: LocalHosts,
) -> None:
    for again in (False, True):
        with Injection({Trainer: Crash(ranks=[0], again=again)}):
            procs = monarch_local.spawn_procs(restart=OneForOne(max_restarts=5, within=60))
            trainer = procs.spawn("trainers", Trainer, 5).slice(hosts=0)
            with pytest.raises(SupervisionError):
                trainer.step.call_one().get()
            if again:
                with pytest.raises(SupervisionError):
                    trainer.step.call_one().get()
            else:
                assert trainer.step.call_one().get() == 6
        procs.stop().get()


def test_what_is_spawned_after_the_block_is_as_ever(monarch_local: LocalHosts) -> None:
    with Injection({Trainer: [Fail(), Crash()]}):
        pass
    assert monarch_local.spawn_procs().spawn("t", Trainer).step.call().get().values() == [1, 1]


def test_a_host_is_lost_and_the_others_go_on(monarch_local: LocalHosts, faults: Faults) -> None:
    with Injection({Trainer: LostHost(ranks=[1])}):
        trainers = monarch_local.spawn_procs({"gpus": 2}).spawn("trainers", Trainer)
    with pytest.raises(SupervisionError):
        trainers.slice(hosts=0, gpus=1).step.call_one().get()
    with pytest.raises(SupervisionError):
        trainers.slice(hosts=0, gpus=0).step.call_one().get()
    assert trainers.slice(hosts=1).step.call().get().values() == [1, 1]
    assert {failure.cause for failure in faults.wait_for(2)} == {"host"}


def test_a_link_that_is_dropped_for_a_moment_delays_what_was_sent(
    monarch_local: LocalHosts,
) -> None:
    with Injection({Trainer: DroppedLink(2.0, ranks=[1])}):
        trainers = monarch_local.spawn_procs().spawn("trainers", Trainer)
    began = monarch_local.now
    assert trainers.step.call().get().values() == [1, 1]
    assert 2.0 <= monarch_local.now - began < 4.0


def test_a_link_that_stays_dropped_is_a_lost_host(
    monarch_local: LocalHosts, faults: Faults
) -> None:
    with Injection({Trainer: DroppedLink(3600.0, ranks=[1])}):
        trainers = monarch_local.spawn_procs().spawn("trainers", Trainer)
    with pytest.raises(SupervisionError):
        trainers.step.call().get()
    assert faults.wait_for(1)[0].cause == "host"


@pytest.mark.processes("hosts with agents of their own")
def test_a_real_host_is_lost_or_not_heard_of_for_a_moment_or_for_good(faults: Faults) -> None:
    plan = [DroppedLink(0.1, ranks=[0]), LostHost(ranks=[1]), DroppedLink(3600.0, ranks=[2])]
    with configured(channel_reconnect_timeout="1s"), workers(3) as found:
        hosts = attach_to_workers(workers=found.addresses)
        procs = hosts.spawn_procs()
        with Injection({Trainer: plan}):
            trainers = procs.spawn("trainers", Trainer)
        assert trainers.slice(hosts=0).step.call_one().get() == 1
        for rank in (1, 2):
            with pytest.raises(SupervisionError):
                trainers.slice(hosts=rank).step.call_one().get()
        assert trainers.slice(hosts=0).step.call_one().get() == 2
        assert {failure.cause for failure in faults.wait_for(2)} == {"host"}
        found.kill_agent(2)  # which stands still
        hosts.shutdown().get()


# the names of the release after 0.7


def test_actors_of_some_owners_fail_by_a_policy(monarch_local: LocalHosts) -> None:
    policies = {Trainer: ActorFailurePolicy(probability=1.0, interval=5.0)}
    with inject_actor_failures(policies, supervisors=[Owner]):
        procs = monarch_local.spawn_procs().slice(hosts=0)
        trainer = procs.spawn("trainers", Trainer)  # which the test owns, no Owner
        owner = procs.spawn("owner", Owner)
        assert owner.step.call_one().get() == "NoneType", "the interval is not over"
        monarch_local.advance(5)
        assert owner.step.call_one().get() == "SupervisionError"
    assert owner.told.call_one().get() == [("exception", True)]
    assert trainer.step.call_one().get() == 1


@pytest.mark.processes("time passes by itself on real meshes")
def test_an_idle_actor_fails_by_itself_on_a_real_mesh(spawn: Spawn, faults: Faults) -> None:
    with inject_actor_failures({Trainer: ActorFailurePolicy(probability=1.0, interval=0.01)}):
        spawn().spawn("trainers", Trainer)
    (failure,) = faults.wait_for(1)
    assert (failure.cause, failure.is_injected) == ("aborted", True)


def test_the_module_has_the_name_of_the_next_release() -> None:
    module = importlib.import_module("monarch.actor.fault_injection")
    assert module.inject_actor_failures is inject_actor_failures
    assert module.ActorFailurePolicy is ActorFailurePolicy


@pytest.mark.parametrize("options", [{"probability": 2.0}, {"after": -1.0}, {"every": 0.0}])
def test_faults_that_make_no_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"probability|seconds"):
        Crash(**options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="faults are"):
        Injection({Trainer: ["crash"]})  # type: ignore[list-item]
