"""Messages between hosts: their order, whichever path each takes; large ones; more of them than a
receiver can take.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from helpers.actors import AsyncRecorder, Counter, Echo, Gate, Recorder, open_channel
from helpers.floods import Consumer, Producer, memory, produce
from helpers.interleaved import Interleaver, check, interleave
from helpers.scripts import run_script
from helpers.waiting import PATIENCE, wait_until
from helpers.workers import Cluster, own_agent, workers
from monarch.actor import Actor, Port, current_rank, endpoint, this_host
from monarch.config import configured
from monarch.errors import BackpressureError

if TYPE_CHECKING:
    from conftest import Spawn

OVER_SOCKETS = pytest.mark.processes("messages between hosts go through sockets")

MEGABYTE = 1 << 20


@pytest.fixture
def seed() -> int:
    return random.SystemRandom().randrange(1 << 30)


def test_a_call_to_several_hosts_is_dropped_where_it_has_not_begun(
    spawn_far: Spawn, tmp_path: Path
) -> None:
    gates = spawn_far(1).spawn("gates", Gate).flatten("rank")
    gates.say.call(0).get(timeout=PATIENCE)
    held = gates.slice(rank=0).wait_for_file.call_one(str(tmp_path / "door"))
    call = gates.say.call(1)
    alone = gates.slice(rank=0).say.call_one(2)
    assert call.cancel()
    assert alone.cancel()
    for future in (call, alone):
        with pytest.raises(CancelledError):
            future.get(timeout=PATIENCE)
    (tmp_path / "door").touch()
    assert held.get(timeout=PATIENCE) == "through"
    assert gates.say.call(3).get(timeout=PATIENCE).values() == [3] * len(gates)


# order


@pytest.mark.parametrize("kind", [Recorder, AsyncRecorder])
def test_what_the_client_sends_in_many_ways_is_handled_in_its_order(
    spawn_far: Spawn, kind: Any, seed: int
) -> None:
    recorders = spawn_far(2).spawn("r", kind).flatten("rank")
    check(recorders, [interleave(recorders, "client", seed, 200)], seed)


def test_senders_on_every_host_are_each_handled_in_their_own_order(
    spawn: Spawn, spawn_far: Spawn, seed: int
) -> None:
    procs = spawn_far(1)
    recorders = procs.spawn("r", Recorder).flatten("rank")
    far = procs.spawn("i", Interleaver)
    near = spawn(1).spawn("i", Interleaver)
    calls = [
        *(
            far.slice(hosts=host, gpus=0).interleave.call_one(recorders, f"far {host}", seed, 60)
            for host in range(3)
        ),
        near.slice(gpus=0).interleave.call_one(recorders, "near", seed, 60),
    ]
    expected = [
        interleave(recorders, "client", seed, 60),
        *(call.get(timeout=PATIENCE) for call in calls),
    ]
    check(recorders, expected, seed)


def test_order_holds_down_a_deep_tree_of_hosts() -> None:
    script = """
    import random, sys, tempfile
    from concurrent.futures import ThreadPoolExecutor
    from helpers.actors import Echo, Recorder
    from helpers.interleaved import Interleaver, check, interleave
    from monarch.actor import attach_to_workers, start_worker_loop_forever
    from monarch.config import configure

    HOSTS = 9
    configure(max_cast_fanout=2)
    seed = random.SystemRandom().randrange(1 << 30)
    folder = tempfile.mkdtemp()
    addresses = [f"ipc://{folder}/{index}" for index in range(HOSTS)]
    with ThreadPoolExecutor(HOSTS) as pool:
        workers = list(pool.map(lambda address: start_worker_loop_forever(address=address), addresses))
    hosts = attach_to_workers(workers=addresses)
    procs = hosts.spawn_procs()
    recorders, senders = procs.spawn("r", Recorder), procs.spawn("i", Interleaver)
    calls = [senders.slice(hosts=n).interleave.call_one(recorders, f"far {n}", seed, 20) for n in (0, 3, 8)]
    expected = [interleave(recorders, "client", seed, 100), *(call.get() for call in calls)]
    check(recorders, expected, seed)
    echo = procs.spawn("e", Echo)
    assert len(set(echo.pid.call().get().values())) == HOSTS
    assert sorted(future.get() for future in echo.say.stream(1)) == [1] * HOSTS
    assert echo.slice(hosts=slice(1, 9, 2)).say.call("x").get().values() == ["x"] * 4
    hosts.shutdown().get()
    for worker in workers:
        worker.get()
    import os
    os.rmdir(folder)
    print("fine")
    """
    result = run_script(
        script,
        timeout=100,
        env={"PYTHONPATH": os.environ["PYTHONPATH"], "HYPERACTOR_MESH_MAX_CAST_FANOUT": "2"},
    )
    assert result.stdout == "fine\n", str(result)


def test_messages_through_ports_and_calls_of_one_sender_keep_their_order(spawn_far: Spawn) -> None:
    class Both(Actor):
        @endpoint
        def send(self, recorder: Any, port: Port[Any], count: int) -> None:
            for number in range(count):
                recorder.record.broadcast(number)
                port.send(number)

    procs = spawn_far(1)
    recorder = procs.spawn("r", Recorder).slice(hosts=2)
    port, receiver = open_channel()
    procs.spawn("b", Both).slice(hosts=0).send.call_one(recorder, port, 100).get(timeout=PATIENCE)
    assert [receiver.recv().get(timeout=PATIENCE) for _ in range(100)] == list(range(100))
    wait_until(
        lambda: len(recorder.recorded.call_one().get(timeout=PATIENCE)) == 100,
        what="all that was recorded",
    )
    assert recorder.recorded.call_one().get(timeout=PATIENCE) == list(range(100))


def test_messages_to_actors_that_are_still_being_made_wait_for_them_in_order(
    spawn_far: Spawn,
) -> None:
    recorders = spawn_far(1).spawn("r", Recorder)
    for number in range(50):
        (recorders.record if number % 2 else recorders.slice(hosts=1).record).broadcast(number)
    everything = list(range(50))
    assert recorders.recorded.call().get(timeout=PATIENCE).values() == [
        everything[1::2],
        everything,
        everything[1::2],
    ]


@OVER_SOCKETS
def test_large_and_small_messages_to_several_hosts_keep_their_order(spawn_far: Spawn) -> None:
    class Sizes(Actor):
        def __init__(self) -> None:
            self.lengths: list[int] = []

        @endpoint
        def take(self, data: Any) -> None:
            self.lengths.append(len(data))

        @endpoint
        def taken(self) -> list[int]:
            return self.lengths

    sizes = spawn_far(1).spawn("s", Sizes)
    wanted = [3_000_000, 1, 100_000, 2, 5_000_000, 3, 70_000, 4]
    for size in wanted:
        sizes.take.broadcast(np.zeros(size, dtype=np.uint8))
    assert sizes.taken.call().get(timeout=PATIENCE).values() == [wanted] * 3


# large


class Arrays(Actor):
    def __init__(self) -> None:
        self.kept: Any = None

    @endpoint
    def double(self, array: Any) -> Any:
        array *= 2  # may be written to
        return array

    @endpoint
    def keep(self, array: Any) -> None:
        array += current_rank().rank
        self.kept = array

    @endpoint
    def sum(self) -> float:
        return float(self.kept.sum())

    @endpoint
    def first_after(self, array: Any, port: Port[str], path: str) -> list[float]:
        port.send("here")
        while not os.path.exists(path):
            time.sleep(0.005)
        return [float(array[0]), float(array[-1])]

    @endpoint
    def pass_on(self, other: Any, array: Any) -> Any:
        return other.double.call_one(array).get(timeout=PATIENCE)

    @endpoint
    def many(self, count: int, size: int) -> list[Any]:
        return [np.full(size, number) for number in range(count)]

    @endpoint
    def send(self, port: Port[Any], size: int) -> None:
        port.send(np.arange(size))


@OVER_SOCKETS
def test_large_arrays_go_there_and_back_and_may_be_written_to(spawn_far: Spawn) -> None:
    arrays = spawn_far(1).spawn("a", Arrays)
    sent = np.arange(4_000_000, dtype=np.float64)  # 32 MB
    back = arrays.slice(hosts=1).double.call_one(sent).get(timeout=PATIENCE)
    np.testing.assert_array_equal(back, sent * 2)
    back += 1
    assert sent[1] == 1


@OVER_SOCKETS
def test_each_rank_has_a_copy_of_its_own(spawn_far: Spawn) -> None:
    arrays = spawn_far(2).spawn("a", Arrays)
    sent = np.ones(1_000_000)
    arrays.keep.call(sent).get(timeout=PATIENCE)
    assert arrays.sum.call().get(timeout=PATIENCE).values() == [
        1e6 * (1 + rank) for rank in range(6)
    ]
    assert sent.sum() == 1e6


@OVER_SOCKETS
def test_arrays_of_many_ranks_come_back_at_once_each_its_own(spawn_far: Spawn) -> None:
    arrays = spawn_far(2).spawn("a", Arrays)
    sent = np.ones(1_000_000)
    found = arrays.double.call(sent).get(timeout=PATIENCE).values()
    found[0][:] = 7
    assert [float(array.sum()) for array in found] == [7e6, *[2e6] * 5]


@OVER_SOCKETS
@pytest.mark.parametrize("size", [10, 20_000, 8_000_000])
def test_a_receiver_on_another_host_does_not_see_what_the_sender_does_later(
    spawn_far: Spawn, tmp_path: Path, size: int
) -> None:
    arrays = spawn_far(1).spawn("a", Arrays)
    sent = np.zeros(size)
    port, receiver = open_channel()
    one = arrays.slice(hosts=0).first_after.call_one(sent, port, str(tmp_path / "go"))
    sent[:] = 1
    every = arrays.first_after.call(sent, port, str(tmp_path / "go"))
    sent[:] = 2
    receiver.recv().get(timeout=PATIENCE)
    (tmp_path / "go").touch()
    assert one.get(timeout=PATIENCE) == [0, 0]
    assert every.get(timeout=PATIENCE).values() == [[1, 1]] * 3


@OVER_SOCKETS
def test_large_arrays_go_from_host_to_host(spawn: Spawn, spawn_far: Spawn) -> None:
    arrays = spawn_far(1).spawn("a", Arrays)
    near = spawn(1).spawn("n", Arrays).slice(gpus=0)
    sent = np.arange(2_000_000)
    for one, other in (
        (arrays.slice(hosts=0), arrays.slice(hosts=2)), (near, arrays.slice(hosts=1)), (arrays.slice(hosts=1), near),
    ):  # fmt: skip
        np.testing.assert_array_equal(
            one.pass_on.call_one(other, sent).get(timeout=PATIENCE), sent * 2
        )


@OVER_SOCKETS
def test_many_arrays_in_one_message_and_arrays_through_ports(spawn_far: Spawn) -> None:
    arrays = spawn_far(1).spawn("a", Arrays)
    found = arrays.slice(hosts=2).many.call_one(50, 30_000).get(timeout=PATIENCE)
    assert [int(array[-1]) for array in found] == list(range(50))
    port, receiver = open_channel()
    arrays.send.call(port, 500_000).get(timeout=PATIENCE)
    for _ in range(3):
        received = receiver.recv().get(timeout=PATIENCE)
        assert received.sum() == np.arange(500_000).sum()
        received[0] = 1


def test_a_message_over_the_limit_is_refused_at_the_call_and_one_below_it_arrives() -> None:
    script = """
    import os, sys
    from monarch.actor import Actor, Channel, attach_to_workers, endpoint, this_host
    from monarch.config import configure
    LIMIT = 1 << 20
    configure(codec_max_frame_length="1 MiB")

    class Sizes(Actor):
        @endpoint
        def length(self, data):
            return len(data)
        @endpoint
        def make(self, size):
            return b"x" * size
        @endpoint
        def send(self, port, size):
            port.send(b"x" * size)
        @endpoint
        def ask(self, other, size):
            return other.length.call_one(b"x" * size).get()

    def outcome(future):
        try:
            return future().get()
        except Exception as error:
            return error

    far = attach_to_workers(workers=os.environ["ADDRESSES"].split()).spawn_procs().spawn("far", Sizes)
    near = this_host().spawn_procs().spawn("near", Sizes)
    one = far.slice(hosts=1)
    port, receiver = Channel.open()
    far.length.call(b"").get()
    for less in (-1000, 0, 1, 30, 70, 100, 200, 300, 1000):
        size = LIMIT - less
        for mesh in (near, far, one):
            found = outcome(lambda: mesh.length.call(b"x" * size))
            if isinstance(found, Exception):
                assert isinstance(found, ValueError) and "limit" in str(found), (less, mesh, found)
                assert less < 1000, (less, mesh, found)
            else:
                assert less > 0 and set(found.values()) == {size}, (less, mesh)
        for found in (
            outcome(lambda: near.make.call_one(size)), outcome(lambda: one.make.call_one(size)),
            outcome(lambda: far.slice(hosts=0).ask.call_one(one, size)),
            outcome(lambda: near.send.call_one(port, size)), outcome(lambda: one.send.call_one(port, size)),
        ):
            if isinstance(found, Exception):
                assert "limit" in str(found) and not isinstance(found, TimeoutError), (less, found)
                assert less < 1000, (less, found)
    assert far.length.call(b"123").get().values() == [3, 3]
    print("fine")
    """
    with workers(2) as found:
        result = run_script(script, env={"ADDRESSES": " ".join(found.addresses)})
    assert result.stdout == "fine\n", str(result)


# more than can be taken


def reset_high_water_mark(pid: int) -> int:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return memory("VmRSS", pid)


@OVER_SOCKETS
@pytest.mark.parametrize("who", ["client", "actor"])
@pytest.mark.parametrize("ranks", ["one", "all"])
def test_a_producer_on_another_host_grows_no_process_without_bound(
    cluster: Cluster, spawn_far: Spawn, who: str, ranks: str
) -> None:
    count, size = 500, 150_000  # 75 MB for each consumer
    with configured(mailbox_limit=10, send_buffer_limit=2 * MEGABYTE):
        procs = spawn_far(1)
        consumers = procs.spawn("consumers", Consumer)
        if ranks == "one":
            consumers = consumers.slice(hosts=slice(2, 3))
        producer = procs.spawn("producer", Producer).slice(hosts=0)
        consumers.start.call().get(timeout=PATIENCE)
        agents = [own_agent(), *(cluster.workers.agent(index) for index in range(3))]
        before = [reset_high_water_mark(pid) for pid in agents]
        if who == "client":
            reset_high_water_mark(os.getpid())
            grown = [produce(consumers, count, size)]
        else:
            port, done = open_channel()
            producer.produce.broadcast(consumers, count, size, port)
            grown = [done.recv().get()]

        def all_taken() -> bool:
            return all(taken == count for taken, _ in consumers.took.call().get().values())

        wait_until(all_taken, what="everything to be taken")
        grown += [growth for _, growth in consumers.took.call().get().values()]
        grown += [memory("VmHWM", pid) - rss for pid, rss in zip(agents, before, strict=True)]
    assert max(grown) < 30 * MEGABYTE, (
        f"grown by {[round(g / MEGABYTE) for g in grown]} of {count * size >> 20} MiB"
    )


def flood(gate: Any) -> None:
    for _ in range(100):
        gate.say.broadcast(b"x" * 100_000)


@OVER_SOCKETS
@pytest.mark.parametrize(
    "select", [lambda mesh: mesh, lambda mesh: mesh.slice(hosts=1)], ids=["all", "one"]
)
def test_a_receiver_that_stands_still_is_an_error_of_the_sender_in_the_end(
    spawn_far: Spawn, tmp_path: Path, select: Callable[[Any], Any]
) -> None:
    door = tmp_path / "door"
    with configured(mailbox_limit=5, send_buffer_limit=MEGABYTE, message_delivery_timeout="700ms"):
        procs = spawn_far(1)
        gate = procs.spawn("gate", Gate)
        port, started = open_channel()
        stuck = gate.slice(hosts=1).wait_for_file.call_one(str(door), port)
        started.recv().get(timeout=PATIENCE)
        with pytest.raises(
            BackpressureError,
            match="no room for this message for 0.7s: it reads nothing, or slower",
        ):
            flood(select(gate))
        # nobody else is held up
        assert procs.slice(hosts=0).spawn("echo", Echo).say.call(1).get(
            timeout=PATIENCE
        ).values() == [1]
        door.touch()
        assert stuck.get(timeout=PATIENCE) == "through"
        assert gate.slice(hosts=1).say.call_one(7).get(timeout=PATIENCE) == 7
        assert gate.slice(hosts=0).say.call_one(7).get(timeout=PATIENCE) == 7


@pytest.mark.parametrize("kind", [Recorder, AsyncRecorder])
def test_a_mailbox_limit_pauses_senders_on_other_hosts_and_nothing_is_lost(
    spawn_far: Spawn, kind: Any
) -> None:
    with configured(mailbox_limit=2):
        recorder = spawn_far(1).spawn("r", kind)
        one = recorder.slice(hosts=1)
        for _ in range(3):
            calls = [one.record.call_one(number) for number in range(200)]
            for call in calls:
                call.get(timeout=PATIENCE)
        assert one.recorded.call_one().get(timeout=PATIENCE) == list(range(200)) * 3
        for number in range(100):
            recorder.record.broadcast(number)
        assert recorder.slice(hosts=2).recorded.call_one().get(timeout=PATIENCE) == list(range(100))


@OVER_SOCKETS
def test_ports_hold_back_a_fast_sender_on_another_host_and_lose_nothing(spawn_far: Spawn) -> None:
    class Floods(Actor):
        @endpoint
        def flood(self, port: Port[Any], count: int, size: int) -> None:
            for number in range(count):
                port.send((number, b"x" * size))

    with configured(send_buffer_limit=MEGABYTE):
        floods = spawn_far(1).spawn("f", Floods)
    port, receiver = open_channel()
    floods.slice(hosts=2).flood.broadcast(port, 300, 100_000)
    assert [receiver.recv().get(timeout=PATIENCE)[0] for _ in range(300)] == list(range(300))


@OVER_SOCKETS
def test_many_small_calls_back_and_forth_between_hosts_leave_nothing_behind(
    cluster: Cluster, spawn_far: Spawn
) -> None:
    class Hammer(Actor):
        @endpoint
        def hammer(self, counters: Any, count: int) -> int:
            for _ in range(count):
                counters.add.broadcast(1)
            return sum(counters.get.call().get(timeout=PATIENCE).values())

    procs = spawn_far(1)
    counters = procs.spawn("c", Counter)
    with this_host().spawn_procs() as here:
        hammers = [procs.spawn("h", Hammer), here.spawn("h", Hammer).flatten("h")]
        for call in [hammer.hammer.call(counters, 300) for hammer in hammers]:
            call.get(timeout=PATIENCE)
        wait_until(
            lambda: counters.get.call().get(timeout=PATIENCE).values() == [1200] * 3,
            what="all that was added",
        )
