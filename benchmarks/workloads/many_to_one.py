"""One-way messages of eight actors in eight processes to one: messages per second, counted until
the last was handled.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.workloads._harness import Measured, Options, main, rate
from monarch.actor import Actor, endpoint, this_host

SENDERS = 8


class Receiver(Actor):
    def __init__(self) -> None:
        self.handled = 0

    @endpoint
    async def add(self, value: int) -> None:
        self.handled += value

    @endpoint
    async def settle(self) -> None:
        """Comes after all that its sender has sent before."""

    @endpoint
    async def take(self) -> int:
        handled, self.handled = self.handled, 0
        return handled


class Sender(Actor):
    @endpoint
    async def send(self, receiver: Any, count: int) -> None:
        for _ in range(count):
            receiver.add.broadcast(1)
        await receiver.settle.call_one()


def batch(senders: Sender, receiver: Receiver, count: int) -> float:
    start = time.perf_counter()
    senders.send.call(receiver, count).get()
    seconds = time.perf_counter() - start
    handled = receiver.take.call_one().get()
    if handled != count * SENDERS:
        raise AssertionError(
            f"{handled} of {count * SENDERS} messages were handled before later calls"
        )
    return seconds


def measure(options: Options) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": SENDERS})
    senders = procs.spawn("sender", Sender)
    receiving = this_host().spawn_procs(per_host={"procs": 1})
    receiver = receiving.spawn("receiver", Receiver)
    count = options.count(2000, least=50)
    batch(senders, receiver, options.count(200, least=20))
    seconds = [batch(senders, receiver, count) for _ in range(3)]
    procs.stop().get()
    receiving.stop().get()
    return rate(count * SENDERS, seconds)


if __name__ == "__main__":
    main(measure)
