"""A producer that is ten times faster than its consumer: what waits is bounded, and nothing is
lost.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.effort import shortened
from helpers.waiting import wait_until
from monarch.actor import Actor, endpoint
from monarch.config import configured

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = [pytest.mark.timeout(240), pytest.mark.processes("messages through sockets")]

SECONDS = shortened(15, 3)  # in which 300 MB would gather if nobody waited, or 60
FILL = shortened(5, 2)  # in which the queues are full
PAUSE = 0.0005  # seconds that the consumer takes for each message
SIZE = 1000  # bytes
MEGABYTE = 1 << 20


def memory() -> int:
    """Bytes that this process has in memory."""
    line = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    return int(line.split()[1]) * 1024


class Consumer(Actor):
    def __init__(self) -> None:
        self.taken = 0

    @endpoint
    def take(self, data: bytes) -> None:
        end = time.perf_counter() + PAUSE
        while time.perf_counter() < end:
            pass
        self.taken += 1

    @endpoint
    def state(self) -> tuple[int, int]:
        return self.taken, memory()


class Producer(Actor):
    @endpoint
    def produce(self, consumer: Any, seconds: float) -> tuple[int, int]:
        """How many were sent, and the memory in use."""
        sent, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            consumer.take.broadcast(b"x" * SIZE)
            sent += 1
        return sent, memory()


def test_a_flood_faster_than_its_handling_takes_bounded_memory(
    spawn: Spawn,
) -> None:
    with configured(mailbox_limit=5000, send_buffer_limit=4 * MEGABYTE):
        consumer = spawn(1).spawn("consumer", Consumer)
        producer = spawn(1).spawn("producer", Producer)
    first, producer_full = producer.produce.call_one(consumer, FILL).get()
    _, consumer_full = consumer.state.call_one().get()
    sent, producer_end = producer.produce.call_one(consumer, SECONDS).get()
    taken, consumer_end = consumer.state.call_one().get()
    assert taken > SECONDS / PAUSE / 20  # it was kept busy
    assert producer_end - producer_full < 10 * MEGABYTE
    assert consumer_end - consumer_full < 10 * MEGABYTE
    wait_until(
        lambda: consumer.state.call_one().get()[0] == first + sent,
        what="the last message",
    )
    print(
        f"{sent} sent; memory: producer {producer_end / MEGABYTE:.0f}, consumer"
        f" {consumer_end / MEGABYTE:.0f} MiB"
    )
