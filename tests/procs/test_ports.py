"""Ports and channels, and endpoints that answer through a port of their own."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Desk, Echo, Ranks, Sender, open_channel
from helpers.waiting import wait_until
from monarch._core.actors.ports import _Claim, _Queue
from monarch.actor import Actor, Channel, Port, PortReceiver, SupervisionError, endpoint, send

pytestmark = pytest.mark.both

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults


def test_what_is_sent_to_a_port_is_received_in_order() -> None:
    port, receiver = open_channel()
    for i in range(100):
        port.send(i)
    assert [receiver.recv().get() for _ in range(100)] == list(range(100))


def test_a_future_that_is_read_while_its_value_arrives_takes_no_second_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give = _Queue._give

    def give_while_somebody_reads(future: Any, frame: Any) -> None:
        readers.append(threading.Thread(target=future.get))
        readers[0].start()
        wait_until(lambda: read, what="the reader to ask")
        # where it has to wait; if it had not, it would have got a second place by now
        time.sleep(0.05)
        give(future, frame)

    read: list[Any] = []
    readers: list[threading.Thread] = []
    observed = _Claim.observed

    def note_reader(claim: _Claim, future: Any, loop: Any) -> None:
        read.append(future)
        observed(claim, future, loop)

    monkeypatch.setattr(_Queue, "_give", staticmethod(give_while_somebody_reads))
    monkeypatch.setattr(_Claim, "observed", note_reader)
    port, receiver = open_channel()
    first = receiver.recv()
    port.send("first")
    assert first.get() == "first"
    readers[0].join()
    monkeypatch.undo()
    second = receiver.recv()
    port.send("second")
    assert second.get() == "second"


def test_a_value_that_comes_in_the_last_moment_of_a_wait_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port, receiver = open_channel()
    withdraw = _Queue.withdraw

    def come_first(queue: _Queue, future: Any) -> None:
        port.send("just in time")
        withdraw(queue, future)

    monkeypatch.setattr(_Queue, "withdraw", come_first)
    assert receiver.recv().get(timeout=0.01) == "just in time"


def test_a_port_carries_copies() -> None:
    port, receiver = open_channel()
    value = [1]
    port.send(value)
    value.append(2)
    assert receiver.recv().get() == [1]


def test_a_receive_can_be_started_before_anything_is_sent_and_awaited() -> None:
    async def main() -> Any:
        port, receiver = open_channel()
        future = receiver.recv()
        port.send("later")
        return await future

    assert asyncio.run(main()) == "later"


def test_values_sent_by_an_actor_arrive_in_its_order(spawn: Spawn) -> None:
    senders = spawn(2).spawn("s", Sender)
    port, receiver = open_channel()
    future = senders.send_all.call(port, list(range(200)))
    received = [receiver.recv().get() for _ in range(400)]
    future.get()
    assert sorted(received) == sorted([*range(200), *range(200)])
    first = senders.slice(gpus=0)
    first.send_all.call_one(port, list(range(200))).get()
    assert [receiver.recv().get() for _ in range(200)] == list(range(200))


def test_per_sender_order_holds_for_two_senders_at_once(spawn: Spawn) -> None:
    senders = spawn(2).spawn("s", Sender)
    port, receiver = open_channel()
    senders.slice(gpus=0).send_all.broadcast(port, [(0, i) for i in range(200)])
    senders.slice(gpus=1).send_all.broadcast(port, [(1, i) for i in range(200)])
    received = [receiver.recv().get() for _ in range(400)]
    for sender in (0, 1):
        assert [i for who, i in received if who == sender] == list(range(200))


def test_a_port_works_from_a_thread_of_an_actor_and_of_the_client(spawn: Spawn) -> None:
    port, receiver = open_channel()
    spawn(1).spawn("s", Sender).send_from_thread.call_one(port, [1, 2, 3]).get()
    assert [receiver.recv().get() for _ in range(3)] == [1, 2, 3]
    thread = threading.Thread(target=port.send, args=(4,))
    thread.start()
    thread.join()
    assert receiver.recv().get() == 4


def test_a_port_can_be_kept_returned_and_sent_on(spawn: Spawn) -> None:
    procs = spawn(2)
    first = procs.slice(gpus=0).spawn("s", Sender)
    second = procs.slice(gpus=1).spawn("s", Sender)
    port, receiver = open_channel()
    first.keep.call_one(port).get()
    (returned,) = first.return_kept.call_one().get()
    second.keep.call_one(returned).get()
    second.send_kept.call_one("from the second").get()
    assert receiver.recv().get() == "from the second"


def test_an_actor_can_open_a_channel_and_receive_from_the_client(spawn: Spawn) -> None:
    class Listens(Actor):
        def __init__(self) -> None:
            self.port, self.receiver = Channel[int].open()

        @endpoint
        def give_port(self) -> Port[int]:
            return self.port

        @endpoint
        def receive(self, count: int) -> list[int]:
            return [self.receiver.recv().get() for _ in range(count)]

    listens = spawn(1).spawn("l", Listens)
    port = listens.give_port.call_one().get()
    for i in range(3):
        port.send(i)
    assert listens.receive.call_one(3).get() == [0, 1, 2]


def test_a_timed_out_receive_gives_its_place_back() -> None:
    port, receiver = open_channel()
    with pytest.raises(TimeoutError):
        receiver.recv().get(timeout=0.05)
    port.send("not lost")
    assert receiver.recv().get() == "not lost"


def test_a_cancelled_await_of_a_receive_gives_its_place_back() -> None:
    async def main() -> Any:
        port, receiver = open_channel()
        with pytest.raises((TimeoutError, asyncio.TimeoutError)):
            await asyncio.wait_for(receiver.recv(), 0.05)
        port.send("not lost")
        return await asyncio.wait_for(receiver.recv(), 20)

    assert asyncio.run(main()) == "not lost"


def test_a_timed_out_receive_that_was_kept_can_be_read_again() -> None:
    port, receiver = open_channel()
    future = receiver.recv()
    with pytest.raises(TimeoutError):
        future.get(timeout=0.05)
    port.send("for the kept one")
    assert future.get() == "for the kept one"


def test_no_message_is_lost_or_doubled_when_receives_time_out_at_random() -> None:
    import random

    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    port, receiver = open_channel()

    def send_all() -> None:
        for i in range(300):
            port.send(i)

    sender = threading.Thread(target=send_all)
    sender.start()
    received: list[int] = []
    while len(received) < 300:
        try:
            received.append(receiver.recv().get(timeout=rng.choice([0, 0.0001, 0.001, 1])))
        except TimeoutError:
            continue
    sender.join()
    assert received == list(range(300))


def test_a_once_channel_takes_one_message_and_refuses_the_second() -> None:
    channel: tuple[Port[int], PortReceiver[int]] = Channel[int].open(once=True)
    port, receiver = channel
    port.send(1)
    assert receiver.recv().get() == 1
    with pytest.raises(RuntimeError):
        port.send(2)
    with pytest.raises(ValueError):
        receiver.recv().get()


def test_an_exception_sent_to_a_port_is_raised_as_it_is(spawn: Spawn) -> None:
    port, receiver = open_channel()
    spawn(1).spawn("s", Sender).send_exception.call_one(port, "through the port").get()
    with pytest.raises(ValueError, match="through the port") as caught:
        receiver.recv().get()
    assert type(caught.value) is ValueError


def test_a_ranked_channel_gives_the_rank_of_each_reply(spawn: Spawn) -> None:
    ranks = spawn(3).spawn("r", Ranks)
    port, receiver = Channel[Any].open_ranked()
    send(ranks.instance_rank, (), {}, port=port)
    pairs = [receiver.recv().get() for _ in range(3)]
    assert sorted((rank, value["gpus"]) for rank, value in pairs) == [(0, 0), (1, 1), (2, 2)]


def test_a_receiver_can_be_turned_into_a_ranked_one(spawn: Spawn) -> None:
    echo = spawn(2).spawn("e", Echo)
    port, receiver = open_channel()
    send(echo.say, ("v",), {}, port=port)
    ranked = receiver.ranked()
    assert sorted(ranked.recv().get() for _ in range(2)) == [(0, "v"), (1, "v")]


def test_a_message_without_a_rank_is_an_error_at_a_ranked_receiver() -> None:
    port, receiver = Channel[Any].open_ranked()
    port.send(1)
    with pytest.raises(ValueError, match="rank"):
        receiver.recv().get()


def test_a_receiver_can_not_be_pickled() -> None:
    _, receiver = open_channel()
    with pytest.raises(TypeError, match="PortReceiver|pickle"):
        pickle.dumps(receiver)


def test_sending_to_a_receiver_that_is_gone_is_quiet(spawn: Spawn) -> None:
    port, receiver = open_channel()
    del receiver
    port.send("to nobody")
    sender = spawn(1).spawn("s", Sender)
    sender.send_all.call_one(port, [1, 2]).get()
    sender.send_all.call_one(port, [1, 2]).get()


def test_an_unpicklable_message_is_refused_by_send() -> None:
    port, _ = open_channel()
    with pytest.raises((TypeError, pickle.PicklingError)):
        port.send(threading.Lock())


# explicit_response_port


def test_a_stored_port_is_answered_by_a_later_endpoint_and_the_caller_gets_it(spawn: Spawn) -> None:
    desk = spawn(1).spawn("d", Desk)
    first = desk.ask.call_one("one")
    second = desk.ask.call_one(question="two")
    assert desk.waiting.call_one().get() == 2
    with pytest.raises(TimeoutError):
        first.get(timeout=0)
    assert desk.answer.call_one("yes").get() == 2
    assert first.get() == "one: yes"
    assert second.get() == "two: yes"


def test_explicit_ports_work_for_a_whole_mesh(spawn: Spawn) -> None:
    desk = spawn(3).spawn("d", Desk)
    future = desk.ask.call("all")
    desk.answer.call("here").get()
    assert future.get().values() == ["all: here"] * 3


def test_an_explicit_port_may_be_answered_from_a_thread(spawn: Spawn) -> None:
    desk = spawn(1).spawn("d", Desk)
    assert desk.ask_and_answer_from_thread.call_one("q").get() == "q: from a thread"


def test_an_exception_through_an_explicit_port_is_raised_as_it_is(spawn: Spawn) -> None:
    desk = spawn(1).spawn("d", Desk)
    future = desk.ask.call_one("q")
    desk.refuse.call_one("refused").get()
    with pytest.raises(KeyError, match="refused") as caught:
        future.get()
    assert type(caught.value) is KeyError
    assert desk.waiting.call_one().get() == 0


def test_an_explicit_port_endpoint_that_raises_fails_the_actor(
    spawn: Spawn, faults: Faults
) -> None:
    desk = spawn(1).spawn("d", Desk)
    with pytest.raises(SupervisionError, match="no answer today"):
        desk.raise_instead.call_one().get()
    faults.wait_for(1)
    assert "no answer today" in faults.reports()


def test_an_actor_that_is_stopped_releases_callers_it_never_answered(spawn: Spawn) -> None:
    desk = spawn(1).spawn("d", Desk)
    future = desk.ask.call_one("never answered")
    desk.waiting.call_one().get()
    desk.stop().get()
    with pytest.raises(SupervisionError):
        future.get()
