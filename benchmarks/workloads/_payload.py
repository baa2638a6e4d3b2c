"""Large arguments: a torch tensor, a numpy array or a bytearray of so many MiB.

The runner picks the best type that *both* environments have, so that they always move the same
object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from benchmarks.workloads._harness import Measured, Options, latency, time_each
from monarch.actor import Actor, endpoint, this_host

PAGE = 4096
FILL = 1


def make(kind: str, mib: int) -> Any:
    """A payload of `mib` MiB, every byte 1."""
    size = mib << 20
    if kind == "torch":
        torch = import_module("torch")
        return torch.full((size,), FILL, dtype=torch.uint8)
    if kind == "numpy":
        numpy = import_module("numpy")
        return numpy.full(size, FILL, dtype=numpy.uint8)
    return bytearray([FILL]) * size


def touch(payload: Any) -> int:
    """Read one byte of each page and return their sum.

    A receiver that maps memory and never looks at it has not received anything yet; this makes it
    pay.
    """
    pages = payload[::PAGE]
    return sum(pages) if isinstance(pages, bytes | bytearray) else int(pages.sum())


def check(payload: Any, mib: int) -> None:
    """Fail unless every page of `payload` arrived."""
    got, wanted = touch(payload), (mib << 20) // PAGE * FILL
    if got != wanted or len(payload) != mib << 20:
        raise AssertionError(
            f"payload of {mib} MiB came back wrong: length {len(payload)}, sum {got}, wanted"
            f" {wanted}"
        )


class Reader(Actor):
    @endpoint
    def echo(self, payload: Any) -> Any:
        return payload

    @endpoint
    def read(self, payload: Any) -> int:
        return touch(payload)


def measure_echo(options: Options, mib: int, count: int, parts: int = 1) -> Measured:
    """A payload there and back, every page of the result read.

    Args:
        count: Operations of a full run.
        parts: How many arrays share the `mib` MiB, in one message; more than one are counted by
            length only.
    """
    procs = this_host().spawn_procs(per_host={"procs": 1})
    actor = procs.spawn("echo", Reader)
    payload = make(options.payload, mib)
    if parts == 1:
        measured = _timed(options, lambda: check(actor.echo.call_one(payload).get(), mib), count)
    else:
        size = (mib << 20) // parts
        arrays = [
            (
                payload[i * size : (i + 1) * size].copy()
                if options.payload != "torch"
                else payload[i * size : (i + 1) * size].clone()
            )
            for i in range(parts)
        ]

        def once() -> None:
            got = actor.echo.call_one(arrays).get()
            if sum(map(touch, got)) != sum(map(touch, arrays)):
                raise AssertionError("the arrays came back changed")

        measured = _timed(options, once, count)
    procs.stop().get()
    return replace(measured, extra={**measured.extra, "payload": options.payload})


def measure_cast(options: Options, mib: int, ranks: int, count: int) -> Measured:
    """A payload to several processes, every page read there."""
    procs = this_host().spawn_procs(per_host={"procs": ranks})
    readers = procs.spawn("reader", Reader)
    payload = make(options.payload, mib)
    wanted = [touch(payload)] * ranks

    def once() -> None:
        got = list(readers.read.call(payload).get().values())
        if got != wanted:
            raise AssertionError(f"a payload arrived changed: sums {got}, wanted {wanted}")

    measured = _timed(options, once, count)
    procs.stop().get()
    return replace(measured, extra={**measured.extra, "payload": options.payload})


def _timed(options: Options, once: Callable[[], None], count: int) -> Measured:
    time_each(once, 2)
    return latency(time_each(once, options.count(count, least=2)), unit="ms")
