"""One `call` at a time to the same actor on eight processes: `call().get()`, p50."""

from __future__ import annotations

from benchmarks.workloads._harness import Measured, Options, latency, main, time_each
from monarch.actor import Actor, endpoint, this_host

PROCS = 8


class Echo(Actor):
    @endpoint
    def echo(self, value: int) -> int:
        return value


def measure(options: Options) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": PROCS})
    actors = procs.spawn("echo", Echo)

    def once() -> None:
        actors.echo.call(1).get()

    time_each(once, options.count(100, least=10))
    measured = latency(time_each(once, options.count(1000, least=50)))
    replies = list(actors.echo.call(7).get().values())
    if replies != [7] * PROCS:
        raise AssertionError(f"wanted {PROCS} times 7, got {replies}")
    procs.stop().get()
    return measured


if __name__ == "__main__":
    main(measure)
