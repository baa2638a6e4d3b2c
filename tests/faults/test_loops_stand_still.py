"""No code of ours blocks a thread that runs an event loop, whatever the program awaits there."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from monarch import actor as names
from monarch._core.calls import waiting
from monarch.actor import Accumulator, Actor, Channel, Port, endpoint, returns_future, this_host
from monarch.queues import Queue, ReplayBuffer
from monarch.rdma import (
    OwnerLostError,
    RDMAAction,
    RDMABuffer,
    Replica,
    pull,
    push,
    share_state,
)
from monarch.service import Service
from monarch.stacks.gather import of_this_program
from monarch.supervision import OneForOne, incarnations
from monarch.telemetry import read

np = pytest.importorskip("numpy")


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The stacks of all waits that code of ours does on a thread with a running loop."""
    stacks: list[str] = []

    def watch(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def guarded(*args: Any, **kwargs: Any) -> Any:
            if waiting.running_loop() is not None:
                frames = traceback.extract_stack()[:-1]
                # microseconds: a thread that is started is waited for, and who makes many calls
                # gives way to those who answer
                brief = any(frame.name.startswith(("start", "give_way")) for frame in frames[-2:])
                if not brief and any("/monarch/" in frame.filename for frame in frames[-4:]):
                    stacks.append("".join(traceback.format_list(frames[-8:])))
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, guarded)

    for owner, name in (
        (waiting, "new_lock"), (waiting, "take_waiter"), (threading.Condition, "wait"),
        (threading.Thread, "join"), (time, "sleep"), (subprocess.Popen, "wait"),
    ):  # fmt: skip
        watch(owner, name)
    yield stacks
    assert stacks == []


class Echo(Actor):
    @endpoint
    def say(self, value: Any) -> Any:
        print("said", value)
        return value

    @endpoint
    def count(self, port: Port[int]) -> None:
        for number in range(3):
            port.send(number)


class Louder(Echo):
    pass


class Owner(Actor):
    def __init__(self) -> None:
        self.state = share_state({"w": np.ones(1000)})
        self.memory = np.zeros(40_000, dtype=np.uint8)
        self.counter = np.zeros(8, dtype=np.uint8)

    @endpoint
    def shared(self) -> Any:
        return self.state, RDMABuffer(self.memory), RDMABuffer(self.counter), os.getpid()


@returns_future
async def body() -> int:
    return 4


def square(number: int) -> int:
    return number**2


async def stream(actors: Any) -> list[Any]:
    return [future.get() async for future in actors.say.stream(2)]


async def receive(actors: Any) -> list[int]:
    port, receiver = Channel[int].open()
    actors.slice(gpus=0).count.broadcast(port)
    seen: list[int] = [await receiver.recv()]
    async for number in receiver:
        seen.append(number)
        if len(seen) == 3:
            break
    return seen


async def use_actors() -> None:
    hosts = this_host()
    async with hosts.spawn_procs({"gpus": 2}, restart=OneForOne(20)) as procs:
        actors = procs.spawn("echo", Echo)
        one = actors.slice(gpus=0)
        await asyncio.gather(hosts.initialized, procs.initialized, actors.initialized)
        assert (await actors.say.call(1)).values() == [1, 1]
        assert await one.say.call_one(1) == 1
        assert await actors.say.choose(1) == 1
        assert await stream(actors) == [2, 2]
        assert await receive(actors) == [0, 1, 2]
        assert await Accumulator(actors.say, 0, lambda left, right: left + right).accumulate(1) == 2
        repeated = actors.say.options(timeout=30, retries=2)
        assert (await repeated.call(1)).values() == [1, 1]
        assert await repeated.choose(1) == 1
        assert await one.say.options(timeout=30, retries=2).call_one(1) == 1
        assert await body() == 4
        await names.get_or_spawn_controller("loops", Echo)
        await asyncio.gather(procs.statistics(), procs.stacks(), hosts.stacks(), of_this_program())
        await procs.logging_option(level=10)
        await procs.flush_logs()
        await actors.update_class(Louder)
        await read("actors")
        await names.pool(procs, square).stop()
        await procs.restart()
        assert (await incarnations(actors)).values() == [1, 1]
        await procs.kill()
        assert (await repeated.call(1)).values() == [1, 1]
        await actors.stop()
    await procs.stop()


async def use_queues() -> None:
    procs = this_host().spawn_procs()
    queue: Queue[int] = Queue(procs, 2)
    await queue.put(1)
    assert await queue.get() == 1
    assert await queue.qsize() == 0
    await queue.statistics()
    await queue.close()
    buffer: ReplayBuffer[int] = ReplayBuffer(procs, 4)
    await buffer.add(1)
    assert await buffer.sample(1) == [1]
    await buffer.statistics()
    await buffer.load(await buffer.state())
    await buffer.forget(1)
    await buffer.clear()
    await procs.stop()


async def use_services() -> None:
    service = Service(this_host(), Echo, name="loops")
    assert await service.say.call_one(1) == 1
    assert (await service.say.call(1)).values() == [1]
    await service.scale(2)
    assert len(await service.status()) == 2
    await service.stop()


async def use_memory() -> None:
    procs = this_host().spawn_procs()
    owner = procs.spawn("owner", Owner)
    state, memory, counter, _ = await owner.shared.call_one()
    here, into = np.zeros(40_000, dtype=np.uint8), {"w": np.zeros(1000)}
    replica = Replica(state, into)
    for number in range(2):  # the second time, this thread does it by itself
        await memory.read_into(here)
        await memory.write_from(here)
        assert await counter.fetch_add(1) == 2 * number
        assert await counter.compare_and_swap(2 * number + 1, 2 * number + 2) == 2 * number + 1
        await push(into, state)
        await state.update(into)
        await pull(state, into)
        await replica.pull()
        await RDMAAction().read_remote(here, memory).submit()
    await memory.drop()
    await procs.stop()


async def pull_for_ever(state: Any, into: Any) -> None:
    while True:
        await pull(state, into)


async def lose_an_owner() -> None:
    """Each of the ways in which a pull can learn of it: at once, later, and from then on."""
    for _ in range(3):
        procs = this_host().spawn_procs(restart=OneForOne())
        owner = procs.spawn("owner", Owner)
        state, memory, _, pid = await owner.shared.call_one()
        into, here = {"w": np.zeros(1000)}, np.zeros(40_000, dtype=np.uint8)
        await pull(state, into)
        await memory.read_into(here)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(OwnerLostError):
            await pull_for_ever(state, into)  # the memory can be read until it is gone
        with pytest.raises(OwnerLostError):
            await memory.read_into(here)
        await procs.stop()


USES: list[Callable[[], Any]] = [
    use_actors, use_queues, use_services, use_memory, lose_an_owner,
]  # fmt: skip


# a controller lives as long as its client, with its thread
@pytest.mark.may_keep("threads", "descriptors")
@pytest.mark.parametrize("use", USES)
def test_nothing_that_a_program_awaits_blocks_its_loop(
    use: Callable[[], Any], blocked: list[str]
) -> None:
    asyncio.run(use(), debug=True)


@pytest.mark.usefixtures("blocked")
def test_awaits_in_an_actor_do_not_block_its_loop() -> None:
    class Reader(Actor):
        """Reads what dies, on the loop of an actor in this process, which is watched."""

        @endpoint
        async def use(self, which: int) -> None:
            await USES[which]()

    reader = names.this_proc().spawn("reader", Reader)
    for which in (USES.index(use_memory), USES.index(lose_an_owner)):
        reader.use.call_one(which).get()
    reader.stop().get()


def test_a_get_that_a_program_does_in_its_loop_is_seen_by_the_watch(blocked: list[str]) -> None:
    procs = this_host().spawn_procs()
    echo = procs.spawn("echo", Echo)

    async def main() -> None:
        with pytest.warns(UserWarning, match="await future"):
            echo.say.call_one(1).get()

    asyncio.run(main())
    assert blocked
    blocked.clear()
    procs.stop().get()


ENDS_THE_PROGRAM = "ends what other tests of this process use"
LEFT_OUT = {
    "HostMesh.shutdown": ENDS_THE_PROGRAM,
    "HostMesh.stop": ENDS_THE_PROGRAM,
    "shutdown_context": ENDS_THE_PROGRAM,
    "start_worker_loop_forever": "waits for the end of a worker, in the process of that",
    "RDMABuffer.ask_owner": "used by what counts",
    "HostMesh.sync_workspace": "a coroutine that has others copy files",
    "ServiceEndpoint.call_one": "used by `service.say`",
    "ServiceEndpoint.call": "used by `service.say`",
}


def test_no_awaitable_of_the_public_api_is_forgotten_here() -> None:
    """What returns a future, by its annotation, is called somewhere above, or left out."""
    source = inspect.getsource(importlib.import_module(__name__)).split("LEFT_OUT = {")[0]
    found: set[str] = set()
    for module in ("actor", "queues", "rdma", "service", "supervision"):
        package = importlib.import_module(f"monarch.{module}")
        for name in package.__all__:
            value = getattr(package, name)
            members = {name: value}
            if isinstance(value, type) and value.__module__.startswith("monarch"):
                members = {
                    f"{name}.{key}": member
                    for key, member in inspect.getmembers(value)
                    if not key.startswith("_")
                }
            for key, member in members.items():
                function = member.fget if isinstance(member, property) else member
                result = str(getattr(function, "__annotations__", {}).get("return", ""))
                if result.startswith("Future[") or inspect.iscoroutinefunction(function):
                    found.add(key)
    assert len(found) > 30
    missing = {name for name in found if f"{name.split('.')[-1]}(" not in source}
    missing -= {name for name in missing if f".{name.split('.')[-1]}," in source}
    assert missing - set(LEFT_OUT) == set()
