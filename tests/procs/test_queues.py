"""`Queue` and `ReplayBuffer`: bounded, fair; what was on its way to a consumer that dies is there
again.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.waiting import wait_until
from monarch._core.calls.callbacks import continuation_thread
from monarch.actor import Actor, ActorError, SupervisionError, current_rank, endpoint, this_proc
from monarch.queues import Empty, Full, Queue, QueueClosed, ReplayBuffer
from monarch.queues.line import Consumer
from monarch.rdma import RDMABuffer

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults


class Worker(Actor):
    """Puts, takes, and says of itself which process it is."""

    @endpoint
    def produce(self, queue: Queue[tuple[int, int]], count: int) -> None:
        for number in range(count):
            queue.put((current_rank().rank, number)).get()

    @endpoint
    def consume(self, queue: Queue[tuple[int, int]]) -> list[tuple[int, int]]:
        return list(queue)

    @endpoint
    def wait_for_one(self, queue: Queue[Any]) -> Any:
        return queue.get().get()

    @endpoint
    def wait_for_two(self, buffer: ReplayBuffer[Any]) -> Any:
        return buffer.sample(2).get()

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class AsyncWorker(Actor):
    @endpoint
    async def consume(self, queue: Queue[tuple[int, int]]) -> list[tuple[int, int]]:
        return [item async for item in queue]


def small_files() -> None:
    """From here on no file of this process may have more than 1 MiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def test_each_item_of_many_producers_is_taken_once_in_the_order_of_its_producer(
    spawn: Spawn,
) -> None:
    queue: Queue[tuple[int, int]] = Queue(spawn(1), maxsize=3)
    procs = spawn(2)
    workers = procs.spawn("producers", Worker)
    taken = [
        procs.spawn("a", Worker).consume.call(queue),
        procs.spawn("b", AsyncWorker).consume.call(queue),
    ]
    workers.produce.call(queue, 50).get()
    queue.close().get()
    lists = [items for each in taken for items in each.get().values()]
    assert Counter(item for items in lists for item in items) == Counter(
        (r, n) for r in range(2) for n in range(50)
    )
    for items in lists:
        for rank in range(2):
            numbers = [number for producer, number in items if producer == rank]
            assert numbers == sorted(numbers)


def test_who_puts_more_than_there_is_room_for_waits_or_is_told(spawn: Spawn) -> None:
    queue: Queue[str] = Queue(spawn(1), maxsize=2)
    queue.put("a").get()
    queue.put("b").get()
    with pytest.raises(Full):
        queue.put("c", timeout=0).get()
    with pytest.raises(Full):
        queue.put("c", timeout=0.01).get()
    waiting = queue.put("d")
    assert queue.qsize().get() == 2
    assert not waiting.done()
    assert [queue.get().get() for _ in range(3)] == ["a", "b", "d"]
    waiting.get()
    with pytest.raises(Empty):
        queue.get(timeout=0).get()
    assert repr(queue) == "<Queue 'queue', maxsize 2>"


def test_a_closed_queue_gives_what_it_has_and_then_says_so(spawn: Spawn) -> None:
    queue: Queue[int] = Queue(spawn(1), maxsize=1)
    queue.put(1).get()
    refused = queue.put(2)
    queue.close().get()
    for future in (refused, queue.put(3)):
        with pytest.raises(QueueClosed):
            future.get()
    assert list(queue) == [1]
    with pytest.raises(QueueClosed):
        queue.get().get()


def test_an_item_for_a_consumer_that_has_died_is_given_to_another(
    spawn: Spawn, faults: Faults
) -> None:
    queue: Queue[str] = Queue(spawn(1), maxsize=2, lease=0.5)
    workers = spawn(1).spawn("workers", Worker)
    pid = workers.pid.call_one().get()
    waiting = workers.wait_for_one.call_one(queue)
    wait_until(lambda: queue.statistics().get().consumers == 1, what="the consumer in the line")
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SupervisionError):
        waiting.get()
    faults.wait_for(1)
    queue.put("first").get()
    queue.put("second").get()
    seen: set[str] = set()
    while len(seen) < 2:  # within so short a lease, an item may be here twice on a busy machine
        seen.add(queue.get().get())
    assert seen == {"first", "second"}


def test_a_batch_for_a_consumer_that_has_died_can_be_drawn_again(
    spawn: Spawn, faults: Faults
) -> None:
    buffer: ReplayBuffer[int] = ReplayBuffer(spawn(1), 4, consume=True, lease=0.5)
    workers = spawn(1).spawn("workers", Worker)
    pid = workers.pid.call_one().get()
    waiting = workers.wait_for_two.call_one(buffer)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SupervisionError):
        waiting.get()
    faults.wait_for(1)
    for number in range(2):
        buffer.add(number).get()
    assert buffer.sample(2, order="oldest").get() == [0, 1]


def test_who_waits_no_longer_takes_nothing(spawn: Spawn) -> None:
    queue: Queue[str] = Queue(spawn(1), maxsize=4)
    queue.get()  # and nobody has its future
    given_up = queue.get()
    with pytest.raises(TimeoutError):
        given_up.get(timeout=0.01)

    async def cancelled() -> str:
        task = asyncio.create_task(_next(queue))
        while not (await queue.statistics()).consumers:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait({task})
        await queue.put("wanted")
        return await queue.get()

    assert asyncio.run(cancelled()) == "wanted"
    queue.put("later").get()
    assert given_up.get() == "later"


async def _next(queue: Queue[str]) -> str:
    return await queue.get()


@pytest.mark.processes("memory of other processes, and files of theirs")
def test_the_end_of_a_queue_right_after_the_last_item_is_no_error(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of the item afterwards comes too late."""
    procs = spawn(1)
    queue: Queue[int] = Queue(procs, maxsize=1)
    queue.put(1).get()
    held = threading.Event()
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    tell = Consumer._tell
    monkeypatch.setattr(Consumer, "_tell", lambda *args: (held.wait(60), tell(*args)))
    assert queue.get().get() == 1
    procs.stop().get()
    held.set()
    done = threading.Event()
    continuation_thread.jobs().put(done.set)
    assert done.wait(60)
    assert reported == []


def test_an_end_of_its_process_ends_the_waits_for_a_queue(spawn: Spawn, faults: Faults) -> None:
    procs = spawn(1)
    queue: Queue[int] = Queue(procs, maxsize=1)
    pid = procs.spawn("beside", Worker).pid.call_one().get()
    waiting = queue.get()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SupervisionError):
        waiting.get()
    with pytest.raises(SupervisionError):
        queue.put(1).get()
    faults.wait_for(1)


@pytest.mark.processes("memory of other processes, and files of theirs")
def test_items_are_what_messages_may_hold(spawn: Spawn) -> None:
    queue: Queue[Any] = Queue(spawn(1), maxsize=10)
    workers = spawn(1).spawn("workers", Worker)
    data = bytearray(b"x" * 100)
    buffer = RDMABuffer(memoryview(data))
    items = [workers, buffer, bytes(1 << 20), lambda: 5]
    for item in items:
        queue.put(item).get()
    mesh, remote, large, function = (queue.get().get() for _ in items)
    assert isinstance(mesh.pid.call_one().get(), int)
    into = bytearray(100)
    remote.read_into(memoryview(into)).get()
    assert (into, large, function()) == (data, bytes(1 << 20), 5)


def test_where_a_queue_cannot_live_and_what_cannot_be_its_size(spawn: Spawn) -> None:
    procs = spawn(2)
    with pytest.raises(ValueError, match="lives in one process"):
        Queue(procs, maxsize=1)
    one = procs.slice(gpus=0)
    with pytest.raises(ValueError, match="maxsize must be at least 1, got 0"):
        Queue(one, maxsize=0)
    with pytest.raises(TypeError, match="maxsize must be an int"):
        Queue(one, maxsize=1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="mesh of one process"):
        ReplayBuffer(this_proc, 3)  # type: ignore[arg-type]
    buffer: ReplayBuffer[int] = ReplayBuffer(one, 3)
    with pytest.raises(ValueError, match="more than the capacity, 3"):
        buffer.sample(4)
    with pytest.raises(ValueError, match="order must be one of"):
        buffer.sample(1, order="latest")  # type: ignore[arg-type]
    for limit in (float("nan"), -1, 10**400):
        with pytest.raises(ValueError, match="timeout must be a number of seconds, from 0"):
            buffer.sample(1, timeout=limit)
    with pytest.raises(ValueError, match="lease must be a number of seconds, from 0.01"):
        Queue(one, maxsize=1, lease=0)


def test_a_replay_buffer_draws_by_order_and_drops_what_is_too_old(spawn: Spawn) -> None:
    buffer: ReplayBuffer[int] = ReplayBuffer(spawn(1), 4, max_age=1, seed=3)
    for number in range(6):
        buffer.add(number).get()
    assert buffer.sample(2, order="oldest").get() == [2, 3]
    assert buffer.sample(2, order="newest").get() == [4, 5]
    drawn = Counter(number for _ in range(40) for number in buffer.sample(2).get())
    assert set(drawn) == {2, 3, 4, 5}
    assert drawn.total() == 80
    buffer.add(6, version=1).get()
    assert sorted(buffer.sample(4).get()) == [3, 4, 5, 6]
    with pytest.raises(Empty):
        buffer.sample(2, version=2, timeout=0).get()
    buffer.add(7, version=0).get()  # is too old already
    found = buffer.statistics().get()
    assert (found.items, found.added, found.expired, found.dropped, found.version) == (
        1,
        8,
        4,
        3,
        2,
    )
    buffer.clear().get()
    assert buffer.statistics().get().items == 0


def test_where_items_are_consumed_producers_wait_for_room_and_consumers_for_a_batch(
    spawn: Spawn,
) -> None:
    buffer: ReplayBuffer[int] = ReplayBuffer(spawn(1), 2, consume=True)
    batch = buffer.sample(2, order="oldest")
    buffer.add(0).get()
    assert not batch.done()
    buffer.add(1).get()
    assert batch.get() == [0, 1]
    with pytest.raises(Empty):
        buffer.sample(1, timeout=0.01).get()
    for number in (2, 3):
        buffer.add(number).get()
    with pytest.raises(Full):
        buffer.add(4, timeout=0.01).get()
    waiting = buffer.add(5)
    assert sorted(buffer.sample(2).get()) == [2, 3]
    waiting.get()
    assert asyncio.run(_draw(buffer)) == [5]


async def _draw(buffer: ReplayBuffer[int]) -> list[int]:
    return await buffer.sample(1)


@pytest.mark.processes("memory of other processes, and files of theirs")
def test_what_memory_does_not_hold_is_on_disk_and_gone_with_the_items(
    spawn: Spawn, tmp_path: Path
) -> None:
    procs = spawn(1)
    buffer: ReplayBuffer[bytes] = ReplayBuffer(
        procs, 200, memory=2 << 20, folder=str(tmp_path), consume=True
    )
    pid = procs.spawn("beside", Worker).pid.call_one().get()
    items = [bytes([number]) * (1 << 20) for number in range(150)]
    for item in items:
        buffer.add(item).get()
    found = buffer.statistics().get()
    assert (found.items, found.spilled) == (150, 149)
    assert found.bytes <= 2 << 20
    assert _spilled(pid, tmp_path) == 3
    assert list(tmp_path.iterdir()) == []  # the files have no name
    drawn = [buffer.sample(10, order="oldest").get() for _ in range(15)]
    assert [item for batch in drawn for item in batch] == items
    assert _spilled(pid, tmp_path) == 1


def _spilled(pid: int, folder: Path) -> int:
    """How many files of a folder a process has open."""
    found = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            found += os.readlink(each).startswith(str(folder))
    return found


@pytest.mark.processes("the limits of a process")
def test_a_full_disk_is_told_to_who_adds_and_what_is_there_stays(spawn: Spawn) -> None:
    procs = spawn(1, bootstrap=small_files)
    buffer: ReplayBuffer[bytes] = ReplayBuffer(procs, 10, memory=0)
    buffer.add(b"small").get()
    with pytest.raises(ActorError, match="File too large"):
        buffer.add(bytes(2 << 20)).get()
    buffer.add(b"small too").get()
    assert sorted(buffer.sample(2).get()) == [b"small", b"small too"]
    full: ReplayBuffer[bytes] = ReplayBuffer(procs, 1, memory=100, name="full")
    full.add(b"first").get()
    with pytest.raises(ActorError, match="File too large"):
        full.add(bytes(2 << 20)).get()
    assert full.sample(1).get() == [b"first"]
