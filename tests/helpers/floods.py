"""A producer that is faster than its consumer, both of which say what memory that took them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from monarch.actor import Actor, Port, endpoint


def memory(field: str, pid: int | str = "self") -> int:
    """A line of /proc/.../status, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise AssertionError(field)


class Consumer(Actor):
    def __init__(self) -> None:
        self.count = 0
        self.before = 0

    @endpoint
    def start(self) -> None:
        self.before = memory("VmRSS")

    @endpoint
    def take(self, number: int, data: bytes) -> None:
        time.sleep(0.001)
        assert number == self.count
        self.count += 1

    @endpoint
    def took(self) -> tuple[int, int]:
        return self.count, memory("VmHWM") - self.before


class Producer(Actor):
    @endpoint
    def produce(self, consumers: Any, count: int, size: int, done: Port[int]) -> None:
        done.send(produce(consumers, count, size))


def produce(consumers: Any, count: int, size: int) -> int:
    """Bytes that this process grows by."""
    before = memory("VmRSS")
    data = b"x" * size
    for number in range(count):
        consumers.take.broadcast(number, data)
    return memory("VmHWM") - before
