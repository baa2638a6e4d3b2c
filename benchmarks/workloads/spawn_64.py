"""64 processes on one host, spawned and each called once, from nothing; stopping them is timed
separately.
"""

from __future__ import annotations

import time

from benchmarks.workloads._harness import Measured, Options, main
from monarch.actor import Actor, endpoint, this_host


class Worker(Actor):
    @endpoint
    def double(self, value: int) -> int:
        return 2 * value


def measure(options: Options) -> Measured:
    count = options.count(64, least=2)
    start = time.perf_counter()
    procs = this_host().spawn_procs(per_host={"procs": count})
    workers = procs.spawn("worker", Worker)
    replies = list(workers.double.call(21).get().values())
    called = time.perf_counter()
    if replies != [42] * count:
        raise AssertionError(f"wanted {count} times 42, got {replies}")
    procs.stop().get()
    stopped = time.perf_counter()
    return Measured(called - start, "s", {"procs": count, "stop_s": stopped - called})


if __name__ == "__main__":
    main(measure)
