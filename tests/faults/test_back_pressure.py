"""Receivers that are slower than their senders: senders are slowed, memory stays bounded, a stop is
not held up.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import AsyncRecorder, Echo, Gate, Recorder, open_channel
from helpers.floods import Consumer, Producer
from helpers.scripts import run_script
from helpers.waiting import wait_until
from monarch._core.client.client import client
from monarch.actor import Actor, SupervisionError, endpoint
from monarch.config import configured

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("bounds of sockets and of memory")

MEGABYTE = 1 << 20


@contextmanager
def flooding(method: Any, count: int) -> Iterator[None]:
    """While a thread sends so many messages, and has to wait; the actor is stopped meanwhile."""

    def flood() -> None:
        with suppress(SupervisionError):
            for number in range(count):
                method.broadcast(number)

    thread = threading.Thread(target=flood)
    thread.start()
    wait_until(lambda: client().hub.full, what="the mailbox to be full")
    yield
    thread.join(20)
    assert not thread.is_alive()


def test_an_actor_with_a_full_mailbox_that_is_stuck_is_stopped_within_the_grace_time(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    with configured(mailbox_limit=20, cleanup_timeout="500ms", message_delivery_timeout="1h"):
        procs = spawn(1)
        gate = procs.spawn("gate", Gate)
        port, started = open_channel()
        stuck = gate.wait_for_file.call_one(str(door), port)
        started.recv().get()
        with flooding(gate.say, 500):
            gate.stop().get()
        with pytest.raises(Exception, match="stop"):
            stuck.get()
        # its neighbour, and its process, are reached again
        assert procs.spawn("echo", Echo).say.call_one(1).get() == 1
        door.touch()


def test_an_actor_with_a_full_mailbox_that_works_on_is_stopped_promptly(spawn: Spawn) -> None:
    class Slow(Actor):
        @endpoint
        def work(self, number: int = 0) -> None:
            time.sleep(0.05)

    with configured(mailbox_limit=10):
        slow = spawn(1).spawn("slow", Slow)
        slow.work.call_one().get()
        with flooding(slow.work, 100_000):  # more than an hour of work
            slow.stop().get()


class Narrow(Actor):
    """Lets one at a time through a door."""

    @endpoint(concurrency=1)
    async def take(self, number: int, door: str) -> int:
        while not os.path.exists(door):
            await asyncio.sleep(0.01)
        return number


def test_calls_that_wait_for_their_turn_count_against_the_limit_of_the_mailbox(
    spawn: Spawn, tmp_path: Path
) -> None:
    door = tmp_path / "door"
    with configured(mailbox_limit=8):
        narrow = spawn(1).spawn("narrow", Narrow)
        # one runs, eight wait: that is the limit
        taken = [narrow.take.call_one(number, str(door)) for number in range(9)]
        taken.append(narrow.take.call_one(9, str(door)))
        wait_until(lambda: bool(client().hub.full), what="the word that there is no more room")
        door.touch()
        assert [future.get() for future in taken] == list(range(10))
        wait_until(lambda: not client().hub.full, what="the word that there is room")


@pytest.mark.parametrize("limit", [1, 10])
@pytest.mark.parametrize("kind", [Recorder, AsyncRecorder])
def test_a_mailbox_limit_pauses_senders_and_resumes_them_and_nothing_is_lost(
    spawn: Spawn, kind: type[Recorder], limit: int
) -> None:
    with configured(mailbox_limit=limit):
        recorder = spawn(1).spawn("recorder", kind)
        for burst in range(5):
            calls = [recorder.record.call_one(number) for number in range(300)]
            for call in calls:
                call.get()
            assert len(recorder.recorded.call_one().get()) == 300 * (burst + 1)
        assert recorder.recorded.call_one().get() == list(range(300)) * 5


@pytest.mark.parametrize("kind", [Recorder, AsyncRecorder])
def test_pauses_that_come_just_as_the_actor_has_caught_up_are_resumed(
    spawn: Spawn, kind: type[Recorder]
) -> None:
    with configured(mailbox_limit=1):
        recorder = spawn(1).spawn("recorder", kind)
        for _ in range(400):
            for call in [recorder.record.call_one(0) for _ in range(6)]:
                call.get()


def test_a_producer_faster_than_its_consumer_grows_neither_without_bound(
    spawn: Spawn,
) -> None:
    count, size = 800, 150_000
    with configured(mailbox_limit=10, send_buffer_limit=2 * MEGABYTE):
        consumer = spawn(1, name="consumer").spawn("consumer", Consumer)
        producer = spawn(1, name="producer").spawn("producer", Producer)
        consumer.start.call_one().get()
        port, done = open_channel()
        producer.produce.broadcast(consumer, count, size, port)
        grown_producer = done.recv().get()
        taken, grown_consumer = consumer.took.call_one().get()
        # the client's call may overtake the last of the producer's: ask until all are there
        while taken < count:
            taken, grown_consumer = consumer.took.call_one().get()
    assert taken == count
    assert grown_producer < 30 * MEGABYTE, (
        f"{grown_producer / MEGABYTE:.0f} of {count * size / MEGABYTE:.0f} MiB"
    )
    assert grown_consumer < 30 * MEGABYTE, (
        f"{grown_consumer / MEGABYTE:.0f} of {count * size / MEGABYTE:.0f} MiB"
    )


def test_a_program_ends_in_order_though_a_mailbox_stays_full() -> None:
    result = run_script(
        """
        import threading, time
        from monarch.actor import Actor, endpoint, this_host
        from monarch.config import configure
        from monarch._core.client.client import client

        class Stuck(Actor):
            @endpoint
            def handle(self):
                time.sleep(600)

        def flood(stuck):
            while True:
                stuck.handle.broadcast()  # waits for room, in the end

        if __name__ == "__main__":
            configure(mailbox_limit=20, cleanup_timeout="100ms", process_exit_timeout="100ms")
            stuck = this_host().spawn_procs().spawn("stuck", Stuck)
            threading.Thread(target=flood, args=(stuck,), daemon=True).start()
            while not client().hub.full:
                time.sleep(0.01)
            print("full", flush=True)
        """,
        timeout=25,  # less than `message_delivery_timeout`
    )
    assert (result.exit_code, result.stdout, result.stderr) == (0, "full\n", ""), result
