"""`monarch.testing.local`: programs of actors in one process."""

import asyncio
import os
import sys
import threading
import time

import pytest

from monarch.actor import (
    Actor,
    ActorError,
    Channel,
    HostMesh,
    MeshFailure,
    Port,
    SupervisionError,
    current_rank,
    endpoint,
    this_host,
    this_proc,
)
from monarch.supervision import OneForOne
from monarch.testing import LocalHosts, local

pytestmark = pytest.mark.timeout(60)


class Keeper(Actor):
    def __init__(self, value: int = 0) -> None:
        self.values = [value]

    @endpoint
    def keep(self, value: int) -> None:
        self.values.append(value)

    @endpoint
    def kept(self) -> list[int]:
        return self.values

    @endpoint
    def change(self, values: list[int]) -> list[int]:
        values.append(7)
        return values

    @endpoint
    def where(self) -> tuple[int, int, int]:
        return os.getpid(), current_rank().rank, threading.get_ident()

    @endpoint
    def send(self, port: Port[int]) -> None:
        port.send(current_rank().rank)

    @endpoint
    def leave(self) -> None:
        sys.exit(3)

    @endpoint
    def fail(self) -> None:
        raise KeyError("nothing here")


class Waiter(Actor):
    @endpoint
    async def sleep(self, seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    @endpoint
    async def never(self) -> None:
        await asyncio.Event().wait()

    @endpoint
    async def in_a_thread(self) -> int:
        return await asyncio.to_thread(lambda: 5)

    async def __cleanup__(self, error: Exception | None) -> None:
        cleaned.append(current_rank().rank)


class Caller(Actor):
    @endpoint
    def wait_for(self, waiter: Waiter) -> None:
        waiter.never.call_one().get()


class Owner(Actor):
    def __init__(self) -> None:
        self.told: list[MeshFailure] = []
        self.procs = this_host().spawn_procs({"gpus": 2})
        self.keepers = self.procs.spawn("keepers", Keeper)

    @endpoint
    def call(self) -> list[int]:
        return [rank for _, rank, _ in self.keepers.where.call().get().values()]

    @endpoint
    def kill(self) -> None:
        self.procs.slice(gpus=1).kill().get()

    @endpoint
    def failures(self) -> list[list[int]]:
        return [failure.ranks for failure in self.told]

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.told.append(failure)
        return True


cleaned: list[int] = []


def test_actors_of_all_ranks_run_in_this_process_on_threads_of_their_own(
    monarch_local: LocalHosts,
) -> None:
    keepers = monarch_local.spawn_procs({"gpus": 2}).spawn("keepers", Keeper)
    found = list(keepers.where.call().get().values())
    assert [rank for _, rank, _ in found] == [0, 1, 2, 3]
    assert len({pid for pid, _, _ in found} - {os.getpid()}) == 4
    threads = {thread for _, _, thread in found} - {threading.get_ident()}
    assert len(threads & {thread.ident for thread in threading.enumerate()}) == 4


def test_an_argument_is_a_copy(monarch_local: LocalHosts) -> None:
    mine = [1]
    keeper = monarch_local.spawn_procs().spawn("keepers", Keeper).slice(hosts=1)
    assert keeper.change.call_one(mine).get() == [1, 7]
    here = this_proc().spawn("here", Keeper)
    assert here.change.call_one(mine).get() == [1, 7]
    assert mine == [1]


def test_an_error_has_its_type_and_an_actor_that_leaves_is_a_failure(
    monarch_local: LocalHosts,
) -> None:
    keeper = monarch_local.spawn_procs().spawn("keepers", Keeper).slice(hosts=0)
    with pytest.raises(KeyError, match="nothing here"):
        keeper.fail.call_one().get()
    with pytest.raises(SupervisionError):
        keeper.leave.call_one().get()


def test_an_actor_owns_procs_and_hears_of_their_end(monarch_local: LocalHosts) -> None:
    owner = monarch_local.spawn_procs().slice(hosts=1).spawn("owner", Owner)
    assert owner.call.call_one().get() == [0, 1]
    owner.kill.call_one().get()
    assert owner.failures.call_one().get() == [[1]]


def test_a_proc_that_is_killed_ends_without_cleaning_up(monarch_local: LocalHosts) -> None:
    cleaned.clear()
    procs = monarch_local.spawn_procs(restart=OneForOne())
    waiters = procs.spawn("waiters", Waiter)
    waiters.sleep.call(0).get()  # else the call would wait for the next incarnation
    call = waiters.slice(hosts=0).never.call_one()
    waiters.slice(hosts=1).sleep.call_one(0).get()
    procs.slice(hosts=0).kill().get()
    with pytest.raises(SupervisionError, match="killed"):
        call.get()
    waiters.sleep.call(0).get()  # both, as it was started again
    procs.stop().get()
    assert sorted(cleaned) == [0, 1]


def test_a_restart_gives_a_new_actor_at_the_same_address(monarch_local: LocalHosts) -> None:
    procs = monarch_local.spawn_procs(restart=OneForOne())
    keeper = procs.spawn("keepers", Keeper).slice(hosts=1)
    keeper.keep.call_one(1).get()
    procs.slice(hosts=1).kill().get()
    assert keeper.kept.call_one().get() == [0]


def test_the_clock_goes_on_when_all_wait(monarch_local: LocalHosts) -> None:
    waiter = monarch_local.spawn_procs().spawn("waiters", Waiter).slice(hosts=0)
    assert waiter.sleep.call_one(3600).get() == 3600
    assert monarch_local.now == 3600
    with pytest.raises(TimeoutError, match="waited 30s"):
        waiter.never.call_one().get(timeout=30)
    assert monarch_local.now == 3630


def test_advance_does_what_is_due_by_then_and_no_more(monarch_local: LocalHosts) -> None:
    waiters = monarch_local.spawn_procs().spawn("waiters", Waiter)
    soon = waiters.slice(hosts=0).sleep.call_one(10)
    later = waiters.slice(hosts=1).sleep.call_one(20)
    monarch_local.advance(15)
    assert (soon.done(), later.done()) == (True, False)
    later.get()


def test_a_job_on_a_thread_of_asyncio_holds_the_clock(monarch_local: LocalHosts) -> None:
    waiter = monarch_local.spawn_procs().spawn("waiters", Waiter).slice(hosts=0)
    assert waiter.in_a_thread.call_one().get() == 5
    assert monarch_local.now == 0


def test_a_thread_of_the_test_may_call_and_wait(monarch_local: LocalHosts) -> None:
    keeper = monarch_local.spawn_procs().spawn("keepers", Keeper).slice(hosts=0)
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(keeper.kept.call_one().get()))
    thread.start()
    thread.join()
    assert found == [[0]]


def test_procs_that_need_a_process_are_refused(monarch_local: LocalHosts) -> None:
    procs = monarch_local.spawn_procs(proc_bind=[{"cpus": "0"}])
    with pytest.raises(ValueError, match="has the environment, and the CPUs, of this process"):
        procs.initialized.get()


def test_nothing_is_left_when_the_block_ends() -> None:
    threads = set(threading.enumerate())
    with local(hosts=2) as hosts:
        procs = hosts.spawn_procs({"gpus": 2})
        waiters = procs.spawn("waiters", Waiter)
        waiters.never.broadcast()
        callers = procs.spawn("callers", Caller)
        callers.slice(hosts=0, gpus=0).wait_for.broadcast(waiters.slice(hosts=1, gpus=1))
        keepers = procs.spawn("keepers", Keeper)
        keepers.kept.call().get(timeout=1)
    assert set(threading.enumerate()) <= threads
    with pytest.raises(SupervisionError):
        procs.spawn("more", Keeper).kept.call().get()


def test_one_at_a_time_and_at_least_one_host(monarch_local: LocalHosts) -> None:
    with pytest.raises(RuntimeError, match="one at a time"), local():
        pass
    with pytest.raises(ValueError, match="at least 1; got 0"), local(hosts=0):
        pass
    with pytest.raises(ValueError, match="forward only"):
        monarch_local.advance(-1)


# the network


class HostOwner(Actor):
    """Owns a keeper on each host, and remembers which were lost."""

    def __init__(self, hosts: HostMesh) -> None:
        self.told: list[MeshFailure] = []
        self.keepers = hosts.spawn_procs().spawn("keepers", Keeper)

    def __supervise__(self, failure: MeshFailure) -> bool:
        self.told.append(failure)
        return True

    @endpoint
    def call(self) -> list[int]:
        return [rank for _, rank, _ in self.keepers.where.call().get().values()]

    @endpoint
    def lost(self) -> list[int]:
        return [rank for failure in self.told for rank in failure.ranks]


def test_what_is_sent_to_a_host_that_is_cut_off_arrives_once_it_is_mended(
    monarch_local: LocalHosts,
) -> None:
    keepers = monarch_local.spawn_procs().spawn("keepers", Keeper)
    keepers.keep.call(1).get()
    monarch_local.cut(1)
    call = keepers.kept.call()
    keepers.keep.broadcast(2)
    assert keepers.slice(hosts=0).kept.call_one().get() == [0, 1, 2]
    monarch_local.advance(3)
    assert not call.done()
    monarch_local.mend(1)
    assert list(call.get().values()) == [[0, 1], [0, 1]]
    assert keepers.slice(hosts=1).kept.call_one().get() == [0, 1, 2]


def test_a_host_that_stays_cut_off_is_lost_for_callers_and_owners(
    monarch_local: LocalHosts,
) -> None:
    owner = monarch_local.slice(hosts=0).spawn_procs().spawn("owner", HostOwner, monarch_local)
    assert owner.call.call_one().get() == [0, 1]
    monarch_local.cut(1)
    with pytest.raises(ActorError, match="host1 has failed:.*\n.*nothing was heard from it for 4s"):
        owner.call.call_one().get()
    assert monarch_local.now == 4
    assert owner.lost.call_one().get() == [1]
    with pytest.raises(SupervisionError, match="host1 has failed"):
        monarch_local.spawn_procs()


def test_a_host_that_is_lost_ends_what_others_own_there(monarch_local: LocalHosts) -> None:
    cleaned.clear()
    here = monarch_local.slice(hosts=0).spawn_procs().spawn("owner", WaiterOwner, monarch_local)
    here.sleep.call_one().get()
    monarch_local.cut(1)
    monarch_local.advance(10)
    assert cleaned == [1]


def test_a_new_proc_can_not_reach_a_host_that_is_lost(monarch_local: LocalHosts) -> None:
    owner = monarch_local.slice(hosts=0).spawn_procs().spawn("owner", WaiterOwner, monarch_local)
    owner.sleep.call_one().get()
    waiters = owner.theirs.call_one().get()
    monarch_local.cut(1)
    monarch_local.advance(5)
    caller = monarch_local.slice(hosts=0).spawn_procs().spawn("caller", Caller)
    with pytest.raises(ActorError, match="host1 has failed"):
        caller.wait_for.call_one(waiters.slice(hosts=1)).get()


class WaiterOwner(Actor):
    """Owns a waiter on each host."""

    def __init__(self, hosts: HostMesh) -> None:
        self.waiters = hosts.spawn_procs().spawn("waiters", Waiter)

    def __supervise__(self, failure: MeshFailure) -> bool:
        return True

    @endpoint
    def sleep(self) -> None:
        self.waiters.sleep.call(0).get()

    @endpoint
    def theirs(self) -> Waiter:
        return self.waiters


def test_only_a_host_that_is_cut_off_can_be_mended(monarch_local: LocalHosts) -> None:
    with pytest.raises(RuntimeError, match="host1 is not cut off"):
        monarch_local.mend(1)
    monarch_local.cut(1)
    with pytest.raises(RuntimeError, match="host1 is cut off already"):
        monarch_local.cut(1)
    monarch_local.advance(5)
    with pytest.raises(RuntimeError, match="host1 is lost"):
        monarch_local.mend(1)
    with pytest.raises(ValueError, match="host=2: expected 0 to 1"):
        monarch_local.cut(2)


# the schedule


def order_of(seed: int) -> list[int]:
    """The order in which one port gets what four ranks send three times each."""
    with local(hosts=2, seed=seed) as hosts:
        keepers = hosts.spawn_procs({"gpus": 2}).spawn("keepers", Keeper)
        port, receiver = Channel[int].open()
        for _ in range(3):
            keepers.send.broadcast(port)
        return [receiver.recv().get() for _ in range(12)]


def test_a_seed_gives_one_order_of_messages_and_another_seed_another() -> None:
    orders = {seed: order_of(seed) for seed in range(5)}
    assert {seed: order_of(seed) for seed in range(5)} == orders
    assert len({tuple(order) for order in orders.values()}) > 1


class Ticker(Actor):
    @endpoint
    async def tick(self) -> None:
        while True:
            await asyncio.sleep(1)


def test_a_program_that_waits_for_something_outside_does_not_burn_its_cpu(
    monarch_local: LocalHosts,
) -> None:
    monarch_local.spawn_procs().spawn("ticker", Ticker).tick.broadcast()
    port, receiver = Channel[str].open()

    def answer_when_it_rests() -> None:
        used = -1.0
        while not 0 <= used < 0.2:  # of a core
            before, began = time.process_time(), time.monotonic()
            time.sleep(0.2)
            used = (time.process_time() - before) / (time.monotonic() - began)
        port.send("rests")

    thread = threading.Thread(target=answer_when_it_rests)
    thread.start()
    assert receiver.recv().get() == "rests"
    thread.join()
