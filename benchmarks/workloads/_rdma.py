"""One-sided transfers between two actors on two processes: what the workloads of that name share.

Both packages take one-dimensional views of bytes, so that is what is moved. Beside each value is the time that this process
takes to copy as much between two pieces of its own memory, both warm.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from benchmarks.workloads._harness import Measured, Options, latency, time_each
from monarch.actor import Actor, endpoint, this_host
from monarch.rdma import RDMAAction, RDMABuffer

Direction = Literal["read", "write"]
FILL = 1
SMALL = 4096


class Owner(Actor):
    def __init__(self, size: int, count: int) -> None:
        self.memory = [bytearray([FILL]) * size for _ in range(count)]
        self.buffers = [RDMABuffer(memoryview(memory)) for memory in self.memory]

    @endpoint
    def share(self) -> list[RDMABuffer]:
        return self.buffers

    @endpoint
    def sums(self) -> list[int]:
        return [sum(memory[:: max(1, len(memory) // 64)]) for memory in self.memory]


class User(Actor):
    @endpoint
    def time(self, buffers: list[RDMABuffer], size: int, direction: str, count: int) -> tuple[list[float], list[float]]:
        """Seconds of single transfers of all buffers, and of copies of as many bytes."""
        mine = [bytearray([FILL + 1]) * size for _ in buffers]
        views = [memoryview(memory) for memory in mine]
        action = RDMAAction()
        for view, buffer in zip(views, buffers, strict=True):
            if direction == "read":
                action.read_remote(view, buffer)
            else:
                action.write_remote(buffer, view)

        def once() -> None:
            if len(buffers) > 1:
                action.submit().get()
            elif direction == "read":
                buffers[0].read_into(views[0]).get()
            else:
                buffers[0].write_from(views[0]).get()

        time_each(once, 2)
        seconds = time_each(once, count)
        if direction == "read" and any(memory[0] != FILL or memory[-1] != FILL for memory in mine):
            raise AssertionError("what was read is not what the owner has")
        return seconds, time_each(lambda: copy(mine), count)


def copy(memory: list[bytearray]) -> None:
    target = _target(len(memory[0]))
    for source in memory:
        target[:] = memoryview(source)


_targets: dict[int, memoryview] = {}


def _target(size: int) -> memoryview:
    if size not in _targets:
        _targets[size] = memoryview(bytearray([FILL]) * size)
    return _targets[size]


def measure(
    options: Options, size: int, direction: Direction, times: int, unit: str = "ms", buffers: int = 1
) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": 2})
    owner = procs.slice(procs=0).spawn("owner", Owner, size, buffers)
    user = procs.slice(procs=1).spawn("user", User)
    shared = owner.share.call_one().get()
    seconds, copies = user.time.call_one(shared, size, direction, options.count(times, least=3)).get()
    if direction == "write":
        wanted = (FILL + 1) * len(range(0, size, max(1, size // 64)))
        if owner.sums.call_one().get() != [wanted] * buffers:
            raise AssertionError("what was written is not what the owner has")
    measured = latency(seconds, unit=unit)
    procs.stop().get()
    return replace(measured, extra={**measured.extra, "copy": latency(copies, unit=unit).value})
