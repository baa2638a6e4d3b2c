"""One-way broadcasts to one actor, per second, counted until the last one was handled; median of
three batches.

Messages of one sender are handled in the order sent, so the reply to one call at the end says that
all were.
"""

from __future__ import annotations

import time

from benchmarks.workloads._harness import Measured, Options, main, rate
from monarch.actor import Actor, endpoint, this_host


class Counter(Actor):
    def __init__(self) -> None:
        self.handled = 0

    @endpoint
    def add(self, value: int) -> None:
        self.handled += value

    @endpoint
    def take(self) -> int:
        handled, self.handled = self.handled, 0
        return handled


def batch(actor: Counter, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        actor.add.broadcast(1)
    handled = actor.take.call_one().get()
    seconds = time.perf_counter() - start
    if handled != count:
        raise AssertionError(f"{handled} of {count} messages were handled before a later call")
    return seconds


def measure(options: Options) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": 1})
    actor = procs.spawn("counter", Counter)
    count = options.count(20_000, least=200)
    batch(actor, options.count(2000, least=50))
    seconds = [batch(actor, count) for _ in range(3)]
    procs.stop().get()
    return rate(count, seconds)


if __name__ == "__main__":
    main(measure)
