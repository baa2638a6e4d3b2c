"""One-way broadcasts to eight actors in eight processes: messages per second, counted until the
last was handled everywhere.
"""

from __future__ import annotations

import time

from benchmarks.workloads._harness import Measured, Options, main, rate
from benchmarks.workloads.one_way import Counter
from monarch.actor import this_host

PROCS = 8


def batch(actors: Counter, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        actors.add.broadcast(1)
    handled = list(actors.take.call().get().values())
    seconds = time.perf_counter() - start
    if handled != [count] * PROCS:
        raise AssertionError(f"{handled} of {count} messages were handled before a later call")
    return seconds


def measure(options: Options) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": PROCS})
    actors = procs.spawn("counter", Counter)
    count = options.count(4000, least=100)
    batch(actors, options.count(500, least=50))
    seconds = [batch(actors, count) for _ in range(3)]
    procs.stop().get()
    return rate(count * PROCS, seconds)


if __name__ == "__main__":
    main(measure)
