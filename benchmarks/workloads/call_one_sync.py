"""One call at a time from the client to a sync endpoint in another process: `call_one().get()`,
p50.
"""

from __future__ import annotations

from benchmarks.workloads._harness import Measured, Options, latency, main, time_each
from monarch.actor import Actor, endpoint, this_host


class Echo(Actor):
    @endpoint
    def echo(self, value: int) -> int:
        return value


def measure(options: Options) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": 1})
    actor = procs.spawn("echo", Echo)

    def once() -> None:
        actor.echo.call_one(1).get()

    time_each(once, options.count(300, least=20))
    measured = latency(time_each(once, options.count(3000, least=100)))
    procs.stop().get()
    return measured


if __name__ == "__main__":
    main(measure)
