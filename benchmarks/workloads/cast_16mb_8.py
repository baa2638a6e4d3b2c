"""16 MiB cast to the same actor on eight processes, every page read there: `call().get()`, p50 in ms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.workloads import _payload
from benchmarks.workloads._harness import Measured, Options, latency, main, time_each
from monarch.actor import Actor, endpoint, this_host

MIB = 16
PROCS = 8


class Reader(Actor):
    @endpoint
    def read(self, payload: Any) -> int:
        return _payload.touch(payload)


def measure(options: Options) -> Measured:
    procs = this_host().spawn_procs(per_host={"procs": PROCS})
    readers = procs.spawn("reader", Reader)
    payload = _payload.make(options.payload, MIB)
    wanted = [_payload.touch(payload)] * PROCS

    def once() -> None:
        got = list(readers.read.call(payload).get().values())
        if got != wanted:
            raise AssertionError(f"a payload arrived changed: sums {got}, wanted {wanted}")

    time_each(once, 2)
    measured = latency(time_each(once, options.count(15, least=3)), unit="ms")
    procs.stop().get()
    return replace(measured, extra={**measured.extra, "payload": options.payload})


if __name__ == "__main__":
    main(measure)
