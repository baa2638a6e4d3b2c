"""One-sided transfers between two actors on two processes: what the workloads of that name share.

Both packages take one-dimensional views of bytes, so that is what is moved. Beside each value
stand, from the same processes: `copy`, the time to copy as much within one process, with
`numpy.copyto`; and `nixl`, that of nixl used by hand, if that is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from benchmarks.workloads import _nixl
from benchmarks.workloads._harness import Measured, Options, latency, time_each
from benchmarks.workloads._memory import copier
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
    def offer_by_hand(self) -> _nixl.Offer:
        self.by_hand = _nixl.ByHand(self.memory)
        return self.by_hand.offer()

    @endpoint
    def sums(self) -> list[int]:
        return [sum(memory[:: max(1, len(memory) // 64)]) for memory in self.memory]


class User(Actor):
    def __init__(self, size: int, count: int) -> None:
        self.memory = [bytearray([FILL + 1]) * size for _ in range(count)]

    @endpoint
    def time(self, buffers: list[RDMABuffer], direction: Direction, count: int) -> list[float]:
        """Seconds of single transfers of all buffers."""
        views = [memoryview(memory) for memory in self.memory]
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

        seconds = self._time(once, count)
        if direction == "read" and any(
            memory[0] != FILL or memory[-1] != FILL for memory in self.memory
        ):
            raise AssertionError("what was read is not what the owner has")
        return seconds

    @endpoint
    def time_copy(self, count: int) -> list[float]:
        return self._time(copier(self.memory), count)

    @endpoint
    def time_by_hand(self, offer: _nixl.Offer, direction: Direction, count: int) -> list[float]:
        self.by_hand = _nixl.ByHand(self.memory)
        return self._time(self.by_hand.prepare(offer, direction), count)

    def _time(self, once: Callable[[], None], count: int) -> list[float]:
        time_each(once, 2)
        return time_each(once, count)


def measure(
    options: Options,
    size: int,
    direction: Direction,
    times: int,
    unit: str = "ms",
    buffers: int = 1,
) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": 2})
    owner = procs.slice(procs=0).spawn("owner", Owner, size, buffers)
    user = procs.slice(procs=1).spawn("user", User, size, buffers)
    shared = owner.share.call_one().get()
    count = options.count(times, least=3)
    seconds = user.time.call_one(shared, direction, count).get()
    if direction == "write":
        wanted = (FILL + 1) * len(range(0, size, max(1, size // 64)))
        if owner.sums.call_one().get() != [wanted] * buffers:
            raise AssertionError("what was written is not what the owner has")
    beside = {"copy": user.time_copy.call_one(count).get()}
    if _nixl.is_installed():
        offer = owner.offer_by_hand.call_one().get()
        beside["nixl"] = user.time_by_hand.call_one(offer, direction, count).get()
    measured = latency(seconds, unit=unit)
    procs.stop().get()
    return replace(
        measured,
        extra={**measured.extra, **{k: latency(v, unit=unit).value for k, v in beside.items()}},
    )
