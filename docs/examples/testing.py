"""Tests of actors, in the process of the test."""

import asyncio
import os
import signal
import sys
import time
from typing import Any

import pytest

from monarch.actor import Actor, HostMesh, MeshFailure, SupervisionError, endpoint, this_host
from monarch.supervision import OneForOne
from monarch.testing import LocalHosts, inject, local


# region actors
class Counter(Actor):
    def __init__(self) -> None:
        self.count = 0

    @endpoint
    def add(self, amount: int) -> int:
        self.count += amount
        return self.count


class Slow(Actor):
    @endpoint
    async def answer(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "done"


class Owner(Actor):
    """Owns counters, and remembers which of them were lost."""

    def __init__(self) -> None:
        self.lost: list[int] = []
        self.procs = this_host().spawn_procs({"gpus": 2})
        self.counters = self.procs.spawn("counters", Counter)

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.lost += failure.ranks
        return True

    @endpoint
    def kill(self, rank: int) -> list[int]:
        self.procs.slice(gpus=rank).kill().get()
        return self.lost

    @endpoint
    def lost_ranks(self) -> list[int]:
        return self.lost


# endregion


# region calls
def test_each_rank_counts_for_itself(monarch_local: LocalHosts) -> None:
    counters = monarch_local.spawn_procs({"gpus": 2}).spawn("counters", Counter)
    counters.add.broadcast(1)
    counters.slice(hosts=0, gpus=0).add.call_one(10).get()
    assert list(counters.add.call(0).get().values()) == [11, 1, 1, 1]


# endregion


# region pickles
def test_what_does_not_pickle_fails_here_as_on_a_cluster(monarch_local: LocalHosts) -> None:
    counters = monarch_local.spawn_procs().spawn("counters", Counter)
    with pytest.raises(TypeError, match="pickle"):
        counters.add.call(sys._getframe()).get()  # type: ignore[arg-type]  # no number


# endregion


# region failures
def test_an_owner_hears_of_the_rank_that_was_lost(monarch_local: LocalHosts) -> None:
    owner = monarch_local.spawn_procs().slice(hosts=0).spawn("owner", Owner)
    owner.kill.call_one(1).get()
    assert owner.lost_ranks.call_one().get() == [1]


def test_a_counter_begins_anew_after_a_restart(monarch_local: LocalHosts) -> None:
    procs = monarch_local.spawn_procs(restart=OneForOne())
    counter = procs.spawn("counters", Counter).slice(hosts=1)
    counter.add.call_one(5).get()
    procs.slice(hosts=1).kill().get()
    assert counter.add.call_one(1).get() == 1


# endregion


# region inject
def test_a_crash_of_one_rank_is_survived(monarch_local: LocalHosts) -> None:
    procs = monarch_local.spawn_procs(restart=OneForOne())
    faults = [inject.Crash(ranks=[1], after=60), inject.Slow(0.5, probability=0.1)]
    with inject.Injection({Counter: faults}, seed=7):
        counters = procs.spawn("counters", Counter)
    assert list(counters.add.call(1).get().values()) == [1, 1]
    monarch_local.advance(60)
    with pytest.raises(SupervisionError):
        counters.add.call(1).get()
    assert counters.slice(hosts=1).add.call_one(1).get() == 1  # again, from the start


# endregion


# region cut
class Total(Actor):
    """Adds up counters on all hosts."""

    def __init__(self, hosts: HostMesh) -> None:
        self.counters = hosts.spawn_procs().spawn("counters", Counter)

    def __supervise__(self, failure: MeshFailure) -> bool:
        return True

    @endpoint
    def add_up(self) -> int | None:
        try:
            return sum(self.counters.add.call(1).get().values())
        except SupervisionError:
            return None


def test_without_one_of_its_hosts_there_is_no_total(monarch_local: LocalHosts) -> None:
    total = monarch_local.slice(hosts=0).spawn_procs().spawn("total", Total, monarch_local)
    assert total.add_up.call_one().get() == 2
    monarch_local.cut(1)
    assert total.add_up.call_one().get() is None
    assert monarch_local.now == 4


# endregion


# region clock
def test_an_hour_passes_at_once(monarch_local: LocalHosts) -> None:
    slow = monarch_local.spawn_procs().slice(hosts=0).spawn("slow", Slow)
    assert slow.answer.call_one(3600).get() == "done"
    assert monarch_local.now == 3600


def test_a_call_is_given_up_after_its_timeout(monarch_local: LocalHosts) -> None:
    slow = monarch_local.spawn_procs().slice(hosts=0).spawn("slow", Slow)
    with pytest.raises(TimeoutError):
        slow.answer.call_one(3600).get(timeout=30)


# endregion


# region seeds
class Feeder(Actor):
    @endpoint
    def feed(self, counter: Any) -> None:
        counter.add.call_one(1).get()


@pytest.mark.parametrize(
    "monarch_local", [{"hosts": 2, "seed": seed} for seed in range(20)], indirect=True
)
def test_the_sum_does_not_depend_on_the_order_of_messages(monarch_local: LocalHosts) -> None:
    counter = monarch_local.spawn_procs().spawn("counters", Counter).slice(hosts=0)
    feeders = monarch_local.spawn_procs({"gpus": 4}).spawn("feeders", Feeder)
    feeders.feed.call(counter).get()
    assert counter.add.call_one(0).get() == 8


# endregion


# region block
def test_a_block_instead_of_the_fixture() -> None:
    with local(hosts=1) as hosts:
        counter = hosts.spawn_procs().spawn("counters", Counter)
    with pytest.raises(SupervisionError):  # all that was spawned inside ended with the block
        counter.add.call(1).get()


# endregion


if __name__ == "__main__":
    raise SystemExit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))


# region signals
class Trainer(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def run_out_of_memory(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_trainer_is_told_as_on_a_cluster(monarch_local: LocalHosts) -> None:
    trainers = monarch_local.spawn_procs(restart=OneForOne()).spawn("trainers", Trainer)
    with pytest.raises(SupervisionError, match="SIGKILL"):
        trainers.slice(hosts=0).run_out_of_memory.call_one().get()
    assert len(trainers.pid.call().get()) == 2  # both are there again


def test_a_trainer_that_stands_still_goes_on(monarch_local: LocalHosts) -> None:
    trainer = monarch_local.spawn_procs().spawn("trainers", Trainer).slice(hosts=0)
    pid = trainer.pid.call_one().get()
    os.kill(pid, signal.SIGSTOP)
    answer = trainer.pid.call_one()
    monarch_local.advance(5)
    assert not answer.done()
    os.kill(pid, signal.SIGCONT)
    assert answer.get() == pid


# endregion


# region sleep
class Poller(Actor):
    @endpoint
    def poll(self, times: int) -> int:
        for _ in range(times):
            time.sleep(60)
        return times


def test_a_day_of_polling_passes_at_once(monarch_local: LocalHosts) -> None:
    pollers = monarch_local.spawn_procs().spawn("pollers", Poller)

    async def main() -> list[int]:
        return list((await pollers.poll.call(24 * 60)).values())

    assert asyncio.run(main()) == [1440, 1440]
    assert monarch_local.now == 24 * 3600


# endregion

if __name__ == "__main__":  # the check of the docs runs it as a program
    sys.exit(pytest.main(["-q", __file__]))
