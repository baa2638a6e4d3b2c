"""128 MiB to an actor in another process and back, every page of the result read; p50 in ms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.workloads import _payload
from benchmarks.workloads._harness import Measured, Options, latency, main, time_each
from monarch.actor import Actor, endpoint, this_host

MIB = 128


class Echo(Actor):
    @endpoint
    def echo(self, payload: Any) -> Any:
        return payload


def measure(options: Options) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": 1})
    actor = procs.spawn("echo", Echo)
    payload = _payload.make(options.payload, MIB)

    def once() -> None:
        _payload.check(actor.echo.call_one(payload).get(), MIB)

    time_each(once, 1)
    measured = latency(time_each(once, options.count(7, least=2)), unit="ms")
    procs.stop().get()
    return replace(measured, extra={**measured.extra, "payload": options.payload})


if __name__ == "__main__":
    main(measure)
