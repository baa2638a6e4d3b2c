"""Large messages and sudden ends: no shared memory outlives those who used it."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.counting import Block
from helpers.leaks import descendants
from helpers.waiting import wait_until
from monarch._core.wire.pickling import RAW_SIZE
from monarch.actor import Actor, endpoint
from monarch.config import configured
from monarch.errors import SupervisionError

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("segments of shared memory")

LARGE = 300_000  # bytes: such buffers travel as shared memory
IN_FLIGHT = 1000


def spacious() -> AbstractContextManager[object]:
    """For a receiver that is spawned meanwhile: its mailbox holds all that is in flight, so nobody
    waits for room.
    """
    return configured(mailbox_bytes_limit=2 * IN_FLIGHT * LARGE)


def users_of_segments() -> dict[int, int]:
    """By process of this program: how many descriptors and mappings of segments it has."""
    found = {}
    for pid in [os.getpid(), *descendants(os.getpid())]:
        try:
            mapped = Path(f"/proc/{pid}/maps").read_text().count("memfd:monarch ")
            open_ = sum(
                "memfd:monarch " in os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir()
            )
        except OSError:  # it, or a descriptor of it, is gone meanwhile
            continue
        if mapped + open_:
            found[pid] = mapped + open_
    return found


class Holder(Actor):
    def __init__(self) -> None:
        self.kept: list[Block] = []

    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def block_until(self, path: str) -> None:
        wait_until(lambda: Path(path).exists(), what="the test to go on")

    @endpoint
    def keep(self, block: Block) -> None:
        self.kept.append(block)

    @endpoint
    def let_go(self) -> int:
        kept = len(self.kept)
        self.kept.clear()
        gc.collect()
        return kept

    @endpoint
    def send_many(self, other: Any, count: int) -> int:
        for _ in range(count):
            other.keep.broadcast(Block(bytearray(LARGE)))
        return count


def test_segments_vanish_when_the_receiver_of_a_thousand_of_them_is_killed(
    spawn: Spawn, faults: Faults, tmp_path: Path
) -> None:
    with spacious():
        holder = spawn(1).spawn("holder", Holder)
    pid = holder.pid.call_one().get()
    holder.block_until.broadcast(str(tmp_path / "never"))
    block = Block(bytearray(LARGE))
    calls = [holder.keep.call_one(block) for _ in range(IN_FLIGHT)]
    assert not any(call.done() for call in calls)
    os.kill(pid, signal.SIGKILL)
    for call in calls:
        with pytest.raises(SupervisionError):
            call.get()
    wait_until(lambda: not users_of_segments(), what="the end of the segments")
    faults.wait_for(1)


def test_segments_vanish_when_the_sender_of_a_thousand_of_them_is_killed(
    spawn: Spawn, faults: Faults, tmp_path: Path
) -> None:
    senders = spawn(1)
    with spacious():
        receivers = spawn(1)
    sender, holder = senders.spawn("sender", Holder), receivers.spawn("holder", Holder)
    pid = sender.pid.call_one().get()
    door = tmp_path / "door"
    holder.block_until.broadcast(str(door))
    assert sender.send_many.call_one(holder, IN_FLIGHT).get() == IN_FLIGHT
    os.kill(pid, signal.SIGKILL)
    faults.wait_for(1)
    door.touch()
    kept = holder.let_go.call_one().get()
    # what the kernel had taken arrives although its sender is dead, and can be used
    assert kept <= IN_FLIGHT
    wait_until(
        lambda: holder.let_go.call_one().get() == 0,
        what="the last of what was on its way",
    )
    wait_until(lambda: not users_of_segments(), what="the end of the segments")


def test_many_medium_buffers_share_a_segment_and_each_is_writable(
    spawn: Spawn,
) -> None:
    class Writer(Actor):
        @endpoint
        def write(self, blocks: list[Block]) -> tuple[int, int]:
            for block in blocks:
                memoryview(block.data)[:1] = b"w"
            segments = Path("/proc/self/maps").read_text().count("memfd:monarch ")
            return len(blocks), segments

    writers = spawn(2).spawn("writer", Writer)
    blocks = [Block(bytearray(100 * 1024)) for _ in range(100)]
    for got, segments in writers.write.call(blocks).get().values():
        assert got == 100
        assert 1 <= segments <= 2  # written pages, and those that are not, are mappings of one
    assert all(block.data[0] == 0 for block in blocks)


class Reader(Actor):
    @endpoint
    def measure(self, block: Block) -> int:
        return len(block.data)


class AsyncReader(Actor):
    @endpoint
    async def measure(self, block: Block) -> int:
        return len(block.data)


@pytest.mark.parametrize("kind", [Reader, AsyncReader])
def test_an_actor_without_anything_to_do_keeps_nothing_of_what_it_was_sent(
    spawn: Spawn, kind: type[Reader]
) -> None:
    reader = spawn(1).spawn("reader", kind)
    assert reader.measure.call_one(Block(bytearray(LARGE))).get() == LARGE
    wait_until(lambda: not users_of_segments(), what="the end of the segment")


def test_large_bytes_arrive_as_what_they_were(spawn: Spawn) -> None:
    class Echo(Actor):
        @endpoint
        def say(self, *values: Any) -> Any:
            return values[0] if len(values) == 1 else values

        @endpoint
        def same(self, one: Any, other: Any) -> bool:
            return one is other

    echo = spawn(1).spawn("echo", Echo)
    data, array = os.urandom(RAW_SIZE), bytearray(os.urandom(RAW_SIZE))
    for value in (data, array):
        got = echo.say.call_one(value).get()
        assert type(got) is type(value)
        assert got == value
    assert echo.say.call_one(data, array, 1).get() == (data, array, 1)
    assert echo.same.call_one(array, array).get()
    assert echo.say.call_one([array], array).get() == ([array], array)
