"""4,000 calls sent to one actor before the first reply is read: calls per second, median of five
batches.
"""

from __future__ import annotations

import time

from benchmarks.workloads._harness import Measured, Options, main, rate
from monarch.actor import Actor, endpoint, this_host


class Echo(Actor):
    @endpoint
    def echo(self, value: int) -> int:
        return value


def batch(actor: Echo, count: int) -> float:
    start = time.perf_counter()
    futures = [actor.echo.call_one(number) for number in range(count)]
    replies = [future.get() for future in futures]
    seconds = time.perf_counter() - start
    if replies != list(range(count)):
        raise AssertionError("a reply went to another call's future")
    return seconds


def measure(options: Options) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": 1})
    actor = procs.spawn("echo", Echo)
    count = options.count(4000, least=100)
    batch(actor, options.count(1000, least=50))
    seconds = [batch(actor, count) for _ in range(5)]
    procs.stop().get()
    return rate(count, seconds)


if __name__ == "__main__":
    main(measure)
