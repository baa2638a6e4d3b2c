"""An async actor awaits one call at a time to an actor in another process, p50.

The client only collects samples.
"""

from __future__ import annotations

import time

from benchmarks.workloads._harness import Measured, Options, latency, main
from monarch.actor import Actor, endpoint, this_host


class Echo(Actor):
    @endpoint
    async def echo(self, value: int) -> int:
        return value


class Caller(Actor):
    def __init__(self, peer: Echo) -> None:
        self.peer = peer

    @endpoint
    async def time_calls(self, count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            await self.peer.echo.call_one(1)
            seconds.append(time.perf_counter() - start)
        return seconds


def measure(options: Options) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": 2})
    echo = procs.slice(procs=0).spawn("echo", Echo)
    caller = procs.slice(procs=1).spawn("caller", Caller, echo)
    caller.time_calls.call_one(options.count(300, least=20)).get()
    measured = latency(caller.time_calls.call_one(options.count(3000, least=100)).get())
    procs.stop().get()
    return measured


if __name__ == "__main__":
    main(measure)
