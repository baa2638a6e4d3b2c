"""What bounds the memory that messages take, measured; and that no bound locks up a program.

The table is in docs/failures.md.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import pytest

from helpers.actors import Echo, open_channel
from helpers.floods import memory
from helpers.processes import agent_of, stopped
from helpers.waiting import wait_until
from helpers.workers import workers
from monarch._core.client.client import client
from monarch.actor import Actor, Channel, Port, attach_to_workers, concurrent_endpoint, endpoint
from monarch.config import configured
from monarch.errors import BackpressureError
from monarch.supervision import OneForOne

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("mailboxes, sockets and segments that are full")

MIB = 1 << 20
LIMIT = 4 * MIB


class Busy(Actor):
    """Handles one message for as long as there is no file."""

    def __init__(self) -> None:
        self.taken = 0

    @endpoint
    def work(self, door: str) -> None:
        while not Path(door).exists():
            time.sleep(0.01)

    @endpoint
    def take(self, data: Any) -> None:
        self.taken += 1

    @endpoint
    def took(self) -> int:
        return self.taken

    @endpoint
    def pid(self) -> int:
        return os.getpid()


class AsyncBusy(Actor):
    def __init__(self) -> None:
        self.taken = 0

    @endpoint
    async def work(self, door: str) -> None:
        while not Path(door).exists():
            await asyncio.sleep(0.01)

    @endpoint
    async def take(self, data: Any) -> None:
        self.taken += 1

    @endpoint
    async def took(self) -> int:
        return self.taken


class Flood:
    """A thread that sends `count` times, and how often it has."""

    def __init__(self, send: Callable[[], object], count: int) -> None:
        self.sent = 0
        self.error: BaseException | None = None
        self._send, self._count = send, count
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            while self.sent < self._count:
                self._send()
                self.sent += 1
        except BaseException as error:
            self.error = error

    def wait_until_held(self) -> None:
        wait_until(
            lambda: client().hub.full or not self.thread.is_alive(), what="word of the full queue"
        )
        assert self.thread.is_alive(), (self.sent, self.error)

    def join(self) -> None:
        self.thread.join(30)
        assert not self.thread.is_alive()


@contextmanager
def small_limits() -> Iterator[None]:
    """For procs that are spawned meanwhile; the client keeps its own."""
    with configured(mailbox_bytes_limit=LIMIT, send_buffer_limit=LIMIT):
        yield


DATA = {
    "1 MiB array": numpy.zeros(MIB, dtype="u1"),
    "100 kB": bytes(100_000),
    "1 MiB inline": bytes(MIB),
}


@pytest.mark.parametrize("data", DATA.values(), ids=DATA)
@pytest.mark.parametrize("kind", [Busy, AsyncBusy])
def test_a_flood_to_a_busy_actor_waits_when_its_mailbox_holds_its_limit_in_bytes(
    spawn: Spawn, tmp_path: Path, kind: Any, data: Any
) -> None:
    door = tmp_path / "door"
    with small_limits():
        busy = spawn(1).spawn("busy", kind)
    busy.work.broadcast(str(door))
    count = 400 * MIB // len(data)
    flood = Flood(lambda: busy.take.broadcast(data), count)
    flood.wait_until_held()
    assert flood.sent * len(data) < 200 * MIB, (
        "what was on its way when the mailbox was full, and not much more"
    )
    door.touch()
    flood.join()
    assert flood.error is None
    assert busy.took.call_one().get() == count


def test_a_flood_within_one_process_waits_as_well(spawn: Spawn, tmp_path: Path) -> None:
    class Neighbour(Actor):
        @endpoint
        def flood(self, busy: Any, count: int, port: Port[int]) -> None:
            for number in range(count):
                busy.take.broadcast(bytes(MIB))
                port.send(number)

    door = tmp_path / "door"
    with small_limits():
        procs = spawn(1)
        busy, neighbour = procs.spawn("busy", Busy), procs.spawn("neighbour", Neighbour)
    busy.work.broadcast(str(door))
    port, sent = open_channel()
    done = neighbour.flood.call_one(busy, 50, port)
    assert [sent.recv().get() for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(TimeoutError):  # without a limit it would have sent them all in a moment
        sent.recv().get(timeout=0.5)
    door.touch()
    done.get()
    assert busy.took.call_one().get() == 50


def test_a_full_actor_does_not_block_others_on_its_connection(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    with small_limits():
        procs = spawn(1)
        busy, echo = procs.spawn("busy", Busy), procs.spawn("echo", Echo)
    busy.work.broadcast(str(door))
    flood = Flood(lambda: busy.take.broadcast(bytes(MIB)), 400)
    flood.wait_until_held()
    assert echo.say.call_one("still here").get() == "still here"
    assert flood.thread.is_alive()
    door.touch()
    flood.join()


class Flooder(Actor):
    """Floods its peer from within a message, while the peer does the same."""

    def __init__(self) -> None:
        self.taken = 0

    @endpoint
    def flood(self, peer: Any, count: int) -> None:
        for _ in range(count):
            peer.take.broadcast(bytes(MIB))

    @endpoint
    def take(self, data: bytes) -> None:
        self.taken += 1

    @endpoint
    def took(self) -> int:
        return self.taken


def test_two_actors_that_flood_each_other_both_get_everything(spawn: Spawn) -> None:
    with small_limits(), configured(deadlock_check_interval="100ms"):
        one, other = (spawn(1, name=name).spawn("flooder", Flooder) for name in ("one", "other"))
    floods = [one.flood.call_one(other, 150), other.flood.call_one(one, 150)]
    for flood in floods:
        flood.get(timeout=25)  # well before the senders would give up
    # what they have sent may be behind this process's question on its way: it is of another sender
    wait_until(
        lambda: [actor.took.call_one().get() for actor in (one, other)] == [150, 150],
        what="all messages of both",
    )


class Asker(Actor):
    """Floods an actor that asks it something for each message."""

    @concurrent_endpoint
    async def flood(self, asking: Any, count: int) -> int:
        for _ in range(count):
            asking.take.broadcast(bytes(MIB))
        return int(await asking.took.call_one())

    @concurrent_endpoint
    async def ask(self) -> int:
        return 1


class Asking(Actor):
    def __init__(self) -> None:
        self.answers = 0
        self.asker: Any = None

    @endpoint
    def meet(self, asker: Any) -> None:
        self.asker = asker

    @endpoint
    def take(self, data: bytes) -> None:
        self.answers += self.asker.ask.call_one().get()

    @endpoint
    def took(self) -> int:
        return self.answers


def test_a_flood_to_an_actor_that_calls_the_flooder_back_goes_through(spawn: Spawn) -> None:
    with small_limits(), configured(deadlock_check_interval="100ms"):
        asker, asking = (
            spawn(1, name="asker").spawn("asker", Asker),
            spawn(1, name="asking").spawn("asking", Asking),
        )
    asking.meet.call_one(asker).get()
    assert asker.flood.call_one(asking, 150).get() == 150


class Source(Actor):
    @endpoint
    def fill(self, port: Port[bytes], count: int, size: int, other: Port[str]) -> None:
        for number in range(count):
            port.send(bytes(size))
            other.send(str(number))
        other.send("done")


def test_a_port_that_is_not_read_holds_its_senders_and_no_one_else(spawn: Spawn) -> None:
    source, echo = (spawn(1).spawn("source", Source), spawn(1).spawn("echo", Echo))
    with small_limits():
        port, unread = Channel[bytes].open()
    other, sent = open_channel()
    filling = source.fill.call_one(port, 200, MIB, other)
    assert sent.recv().get() == "0"
    wait_until(lambda: unread._queue._pressure.paused, what="the port to be full")
    assert echo.say.call_one(1).get() == 1
    for _ in range(200):
        assert len(unread.recv().get()) == MIB
    filling.get()


def test_who_sends_to_a_port_that_is_never_read_is_told_after_the_delivery_timeout(
    spawn: Spawn,
) -> None:
    with configured(message_delivery_timeout="300ms"):
        source = spawn(1).spawn("source", Source)
    with small_limits():
        port, unread = Channel[bytes].open()
    other, _ = open_channel()
    with pytest.raises(BackpressureError, match=r"mailbox_bytes_limit"):
        source.fill.call_one(port, 200, MIB, other).get()
    assert unread.recv().get()


def test_the_senders_of_a_full_port_go_on_when_its_receiver_is_forgotten(spawn: Spawn) -> None:
    source = spawn(1).spawn("source", Source)
    with small_limits():
        port, unread = Channel[bytes].open()
    receivers = [unread]
    del unread
    other, sent = open_channel()
    filling = source.fill.call_one(port, 200, MIB, other)
    wait_until(lambda: receivers[0]._queue._pressure.paused, what="the port to be full")
    receivers.clear()
    filling.get()
    assert [sent.recv().get() for _ in range(201)][-1] == "done"


class Loud(Actor):
    @endpoint
    def fail(self) -> None:
        raise ValueError("x" * 5 * MIB)


class Owner(Actor):
    """Has actors fail, one after the other, and says how much its process has grown by that."""

    def __init__(self) -> None:
        self.failures = 0

    def __supervise__(self, failure: Any) -> bool:
        self.failures += 1
        return True

    @endpoint
    async def grow(self, procs: Any, count: int) -> int:
        before = memory("VmRSS")
        for number in range(count):
            procs.spawn(f"loud{number}", Loud).fail.broadcast()
            while self.failures <= number:
                await asyncio.sleep(0.005)
        gc.collect()
        return memory("VmRSS") - before


def test_a_flood_to_a_process_that_starts_again_waits_until_it_is_back(spawn: Spawn) -> None:
    procs = spawn(1, restart=OneForOne())
    busy = procs.spawn("busy", Busy)
    pid = busy.pid.call_one().get()
    mesh: Any = busy
    peer: Any = client().hub.peers[mesh._target.procs[0]]
    count = 32
    with configured(send_buffer_limit=LIMIT):
        with stopped(agent_of(pid)):  # which would start it again at once
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: peer.connection is None, what="the connection to break")
            flood = Flood(lambda: busy.take.broadcast(bytes(MIB)), count)
            wait_until(
                lambda: flood.sent >= LIMIT // MIB - 1, what="the flood to fill what may wait"
            )
            flood.thread.join(0.2)
            assert flood.thread.is_alive(), (flood.sent, flood.error)
            assert flood.sent <= LIMIT // MIB
        flood.join()
    assert flood.error is None
    assert busy.took.call_one().get() == count


def test_failures_with_long_messages_are_remembered_in_few_bytes(spawn: Spawn) -> None:
    owner = spawn(1).spawn("owner", Owner)
    # 300 MB of texts and pickled exceptions
    grown = owner.grow.call_one(spawn(1), 15).get()
    assert grown < 120 * MIB, f"{grown / MIB:.0f} MiB"


class Generous(Actor):
    """Answers with large values."""

    @endpoint
    def work(self, door: str) -> None:
        while not Path(door).exists():
            time.sleep(0.01)

    @endpoint
    def array(self) -> Any:
        return numpy.zeros(MIB, dtype="u1")

    @endpoint
    def text(self) -> bytes:
        return bytes(MIB)


class Deaf(Actor):
    """Makes calls, and then holds the interpreter lock of its process, which so reads no
    answers.
    """

    @endpoint
    def call(self, generous: Any, kind: str, count: int, fifo: str) -> int:
        answers = [getattr(generous, kind).call_one() for _ in range(count)]
        fd = os.open(fifo, os.O_RDONLY)
        ctypes.PyDLL(None).read(fd, ctypes.create_string_buffer(1), 1)
        os.close(fd)
        return sum(len(answer.get()) for answer in answers)


@pytest.fixture(params=["here", "elsewhere"])
def generous(request: pytest.FixtureRequest, spawn: Spawn) -> Iterator[Any]:
    """Procs of the same host, and of another one."""
    if request.param == "here":
        with small_limits():
            procs = spawn(1)
        yield procs
        return
    with workers(1) as found:
        hosts = attach_to_workers(workers=found.addresses)
        with small_limits():
            procs = hosts.spawn_procs(per_host={"gpus": 1})
        yield procs
        hosts.stop().get()


@pytest.mark.parametrize("kind", ["array", "text"])
def test_answers_to_a_process_that_does_not_read_hold_up_who_answers(
    generous: Any, spawn: Spawn, tmp_path: Path, kind: str
) -> None:
    door, fifo = tmp_path / "door", tmp_path / "fifo"
    os.mkfifo(fifo)
    procs = generous
    with small_limits():
        deaf = spawn(1).spawn("deaf", Deaf)
    generous = procs.spawn("generous", Generous)
    generous.work.broadcast(str(door))
    count = 200
    calls = deaf.call.call_one(generous, kind, count, str(fifo))
    with fifo.open("wb", buffering=0) as reads_on:
        wait_until(lambda: _queued(procs) == count, what="the calls")
        door.touch()
        left = _settled(lambda: _queued(procs))
        assert left > count // 2, (
            "what fits the socket, a queue and shared memory of 4 MiB, and not much more, is"
            " answered"
        )
        reads_on.write(b"1")
        assert calls.get() == count * MIB


def _queued(procs: Any) -> int:
    return int(procs.statistics().get().values()[0].messages_queued)


def _settled(count: Callable[[], int]) -> int:
    """What `count` gives when it has not changed for a while, which is how a flood that nothing
    holds up would not look.
    """
    seen = [-1]
    while seen.count(seen[-1]) < 20 or seen[-1] < 0:
        seen.append(count())
        time.sleep(0.05)
    return seen[-1]
