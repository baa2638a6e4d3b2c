"""An explicit-port endpoint that forgets its port: its caller is told, and nobody else's answer is
taken for forgotten.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Sender, open_channel
from helpers.waiting import wait_until
from monarch.actor import (
    Actor,
    ActorError,
    MeshFailure,
    Port,
    ProcMesh,
    SupervisionError,
    as_endpoint,
    context,
    current_rank,
    endpoint,
    send,
    this_proc,
)

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both


class Forgetful(Actor):
    def __init__(self) -> None:
        self.kept: list[Any] = []

    @endpoint(explicit_response_port=True)
    def forget(self, port: Port[int]) -> None: ...

    @endpoint(explicit_response_port=True)
    def forget_on_odd_ranks(self, port: Port[int]) -> None:
        rank = context().actor_instance.rank.rank
        if rank % 2 == 0:
            port.send(rank)

    @endpoint(explicit_response_port=True)
    def answer_badly(self, port: Port[Any]) -> None:
        with suppress(TypeError):
            port.send(threading.Lock())

    @endpoint(explicit_response_port=True)
    def forget_in_a_circle(self, port: Port[int]) -> None:
        circle: list[Any] = [port]
        circle.append(circle)

    @endpoint(explicit_response_port=True)
    def forget_in_a_thread(self, port: Port[int]) -> None:
        threading.Thread(target=lambda: port).start()

    @endpoint(explicit_response_port=True)
    def keep(self, port: Port[str]) -> None:
        self.kept.append(port)

    @endpoint(explicit_response_port=True)
    def hand_on(self, port: Port[int], sender: Sender, value: int) -> None:
        sender.send_all.broadcast(port, [value])

    @endpoint(explicit_response_port=True)
    def answer_with_a_call(self, port: Port[int], sender: Sender) -> None:
        send(sender.return_kept, (), {}, port=port)

    @endpoint(explicit_response_port=True)
    def raise_instead(self, port: Port[int]) -> None:
        raise ValueError("the real reason")

    @endpoint
    def answer_kept(self, text: str) -> None:
        while self.kept:
            self.kept.pop().send(text)

    @endpoint
    def drop_kept(self) -> None:
        del self.kept[:]

    @endpoint
    def answer_one(self, text: str) -> None:
        self.kept.pop(0).send(text)

    @endpoint
    def take(self, port: Port[str]) -> None:
        self.kept.append(port)

    @endpoint(explicit_response_port=True)
    def give_to(self, port: Port[str], other: Forgetful) -> None:
        other.take.broadcast(port)

    @endpoint
    def count_kept(self) -> int:
        return len(self.kept)

    @endpoint
    def collect_garbage(self) -> None:
        gc.collect()

    def undecorated(self, port: Port[int]) -> None: ...


class AsyncForgetful(Actor):
    def __init__(self) -> None:
        self.kept: list[Any] = []

    @endpoint(explicit_response_port=True)
    async def forget(self, port: Port[int]) -> None:
        await asyncio.sleep(0)

    @endpoint(explicit_response_port=True)
    async def forget_on_odd_ranks(self, port: Port[int]) -> None:
        rank = context().actor_instance.rank.rank
        if rank % 2 == 0:
            port.send(rank)

    @endpoint(explicit_response_port=True)
    async def keep(self, port: Port[str]) -> None:
        self.kept.append(port)

    @endpoint(explicit_response_port=True)
    async def answer_in_a_task(self, port: Port[str]) -> None:
        async def answer() -> None:
            await asyncio.sleep(0)
            port.send("from a task")

        self.kept.append(asyncio.create_task(answer()))

    @endpoint(explicit_response_port=True)
    async def raise_instead(self, port: Port[int]) -> None:
        raise ValueError("the real reason")

    @endpoint
    async def answer_kept(self, text: str) -> None:
        while self.kept:
            self.kept.pop().send(text)

    @endpoint
    async def drop_kept(self) -> None:
        del self.kept[:]


both_kinds = pytest.mark.parametrize("kind", [Forgetful, AsyncForgetful])


def check_forgotten(error: BaseException | None, what: str) -> None:
    assert isinstance(error, ActorError)
    assert type(error.exception) is RuntimeError
    assert f"the response port of {what}() was dropped without an answer" in str(error.exception)
    assert what in error.message


@both_kinds
@pytest.mark.parametrize("where", ["proc", "the client"])
def test_a_caller_is_told_that_its_port_was_forgotten_and_the_actor_serves_on(
    spawn: Spawn, kind: Any, where: str
) -> None:
    forgetful = (spawn(1) if where == "proc" else this_proc()).spawn("desk", kind)
    for future in (forgetful.forget.call(), forgetful.forget.call_one(), forgetful.forget.choose()):
        check_forgotten(future.exception(), "desk.forget")
    with pytest.raises(RuntimeError, match="dropped without an answer"):  # its type, too
        forgetful.forget.call_one().get()
    kept = forgetful.keep.call_one()
    forgetful.answer_kept.call_one("and answers").get()
    assert kept.get() == "and answers"
    forgetful.stop().get()


@both_kinds
def test_the_ranks_that_forgot_are_told_apart_from_those_that_answered(
    spawn: Spawn, kind: Any
) -> None:
    forgetful = spawn(4).spawn("desk", kind)
    error = forgetful.forget_on_odd_ranks.options(wait_for_all=True).call().exception()
    check_forgotten(error, "desk.forget_on_odd_ranks")
    assert isinstance(error, ActorError)
    assert [point.rank for point in error.by_rank] == [1, 3]
    answers = list(forgetful.forget_on_odd_ranks.stream())
    for answer in answers:
        error = answer.exception()
        assert answer.rank is not None
        if answer.rank.rank % 2:
            check_forgotten(error, "desk.forget_on_odd_ranks")
        else:
            assert error is None


def test_the_receiver_of_an_answer_at_a_port_of_its_own_is_told(spawn: Spawn) -> None:
    forgetful = spawn(1).spawn("desk", Forgetful)
    port, receiver = open_channel()
    send(forgetful.forget, (), {}, port=port)
    check_forgotten(receiver.recv().exception(), "desk.forget")


def test_an_undecorated_method_that_forgets_is_found_too(spawn: Spawn) -> None:
    forgetful = spawn(1).spawn("desk", Forgetful)
    undecorated: Any = as_endpoint(forgetful.undecorated, explicit_response_port=True)
    check_forgotten(undecorated.call_one().exception(), "desk.undecorated")


@pytest.mark.parametrize("how", ["answer_badly", "forget_in_a_thread"])
def test_an_unanswered_port_is_forgotten_though_tried_or_taken_along(
    spawn: Spawn, how: str
) -> None:
    forgetful = spawn(1).spawn("desk", Forgetful)
    check_forgotten(getattr(forgetful, how).call_one().exception(), f"desk.{how}")


def test_a_port_in_a_circle_is_forgotten_when_the_garbage_is_collected(spawn: Spawn) -> None:
    forgetful = spawn(1).spawn("desk", Forgetful)
    future = forgetful.forget_in_a_circle.call_one()
    forgetful.collect_garbage.call_one().get()
    check_forgotten(future.exception(), "desk.forget_in_a_circle")


@both_kinds
def test_a_port_that_is_kept_is_forgotten_when_a_later_endpoint_lets_go_of_it(
    spawn: Spawn, kind: Any
) -> None:
    forgetful = spawn(2).spawn("desk", kind)
    future = forgetful.keep.call()
    with pytest.raises(TimeoutError):
        future.get(timeout=0.3)
    forgetful.drop_kept.call().get()
    check_forgotten(future.exception(), "desk.keep")


@both_kinds
def test_a_port_that_is_kept_is_answered_however_many_others_are_forgotten(
    spawn: Spawn, kind: Any
) -> None:
    forgetful = spawn(1).spawn("desk", kind)
    kept = [forgetful.keep.call_one() for _ in range(20)]
    for _ in range(20):
        assert forgetful.forget.call_one().exception() is not None
    assert not any(future.done() for future in kept)
    forgetful.answer_kept.call_one("at last").get()
    assert [future.get() for future in kept] == ["at last"] * 20


def test_a_task_may_answer_when_its_endpoint_has_returned(spawn: Spawn) -> None:
    assert spawn(1).spawn("desk", AsyncForgetful).answer_in_a_task.call_one().get() == "from a task"


@pytest.mark.parametrize("apart", [True, False], ids=["another proc", "the same proc"])
def test_another_actor_may_answer_though_the_first_one_kept_nothing(
    spawn: Spawn, apart: bool
) -> None:
    procs = spawn(2)
    forgetful = procs.slice(gpus=0).spawn("desk", Forgetful)
    sender = procs.slice(gpus=int(apart)).spawn("sender", Sender)
    for value in range(20):
        assert forgetful.hand_on.call_one(sender, value).get() == value
    answer: Any = forgetful.answer_with_a_call.call_one(sender)
    assert answer.get() == []


@both_kinds
def test_who_raises_instead_of_an_answer_is_reported_as_that(
    spawn: Spawn, faults: Faults, kind: Any
) -> None:
    forgetful = spawn(2).spawn("desk", kind)
    kept = forgetful.keep.call()
    with pytest.raises(SupervisionError, match="the real reason"):
        forgetful.raise_instead.call().get()
    with pytest.raises(SupervisionError, match="the real reason"):
        kept.get()
    faults.wait_for(2)


@both_kinds
def test_a_stop_is_reported_as_a_stop_for_ports_that_go_with_their_actor(
    spawn: Spawn, kind: Any
) -> None:
    forgetful = spawn(1).spawn("desk", kind)
    kept = forgetful.keep.call_one()
    forgetful.answer_kept.call_one("answered").get()
    unanswered = forgetful.keep.call_one()
    forgetful.stop().get()
    assert kept.get() == "answered"
    with pytest.raises(SupervisionError, match="stopped"):
        unanswered.get()


def test_a_port_in_a_one_way_message_is_reported_to_no_caller(spawn: Spawn) -> None:
    class Tells(Actor):
        def __init__(self, forgetful: Forgetful) -> None:
            self.forgetful = forgetful
            self.heard: list[str] = []

        @endpoint
        def broadcast(self, endpoints: list[str]) -> None:
            for name in endpoints:
                getattr(self.forgetful, name).broadcast()

        @endpoint
        def undeliverable(self) -> list[str]:
            return self.heard

        def _handle_undeliverable_message(self, message: Any) -> bool:
            self.heard.append(str(message))
            return True

    forgetful = spawn(1).spawn("desk", Forgetful)
    tells = spawn(1).spawn("tells", Tells, forgetful)
    tells.broadcast.call_one(["forget", "keep", "drop_kept", "keep", "keep"]).get()
    wait_until(
        lambda: forgetful.count_kept.call_one().get() == 2,
        what="the desk to have handled the last one",
    )
    forgetful.stop().get()
    # finds nobody, which is heard; nothing from before is
    tells.broadcast.call_one(["forget"]).get()
    heard: list[str] = wait_until(
        lambda: tells.undeliverable.call_one().get(),
        what="news of the message that found nobody",
    )
    assert len(heard) == 1


def test_a_port_may_be_dropped_wherever_garbage_is_collected(spawn: Spawn) -> None:
    class Careless(Actor):
        """Its process collects garbage at nearly every allocation, of the thread that reads
        messages, too.
        """

        def __init__(self) -> None:
            gc.set_threshold(1)

        @endpoint(explicit_response_port=True)
        def forget(self, port: Port[int]) -> None:
            circle: list[Any] = [port]
            circle.append(circle)

        @endpoint
        def collect_garbage(self) -> None:
            gc.collect()

    careless = spawn(1).spawn("careless", Careless)
    futures = [careless.forget.call_one() for _ in range(200)]
    careless.collect_garbage.call_one().get()
    for future in futures:
        check_forgotten(future.exception(), "careless.forget")


def test_a_call_whose_port_was_handed_on_ends_with_the_actor_that_was_called(spawn: Spawn) -> None:
    desk, other = (spawn(1).spawn(name, Forgetful) for name in ("desk", "other"))
    answered, unanswered = (desk.give_to.call_one(other) for _ in range(2))
    wait_until(lambda: other.count_kept.call_one().get() == 2, what="both ports")
    other.answer_one.call_one("from another").get()
    assert answered.get() == "from another"
    desk.stop().get()
    with pytest.raises(SupervisionError, match="stopped"):
        unanswered.get()


class Desk(Forgetful):
    """Has others answer, which may be on another process, and may hand on the port themselves."""

    @endpoint
    def own(self, procs: ProcMesh) -> Any:
        return procs.spawn("owned", Desk)

    def __supervise__(self, failure: MeshFailure) -> bool:
        return True

    @endpoint(explicit_response_port=True)
    def ask(self, port: Port[Any], how: str, answering: Desk, *more: Desk) -> None:
        answering.answer.broadcast(port, how, *more)

    @endpoint(explicit_response_port=True)
    def ask_and_keep(self, port: Port[Any], how: str, answering: Desk) -> None:
        self.kept.append(port)
        answering.answer.broadcast(port, how)

    @endpoint
    def answer(self, port: Port[Any], how: str, *more: Desk) -> None:
        if more:
            more[0].answer.broadcast(port, how, *more[1:])
        elif how == "value":
            port.send("yes")
        elif how == "error":
            port.exception(ValueError("no"))
        elif how == "keep":
            self.kept.append(port)
        elif how == "raise":
            raise ValueError("while it has the port")
        elif how == "late on rank 1" and current_rank().rank == 1:
            self.kept.append(port)

    @endpoint
    def exit(self) -> None:
        os._exit(3)

    @endpoint
    def calls_kept(self) -> int:
        return len(context()._cell.hub.open_responses)


WAYS = [["there"], ["here"], ["there", "third"], ["there", "here"]]


@pytest.mark.parametrize("ways", WAYS)
def test_a_call_that_others_have_answered_is_kept_no_longer(spawn: Spawn, ways: list[str]) -> None:
    procs = spawn(3)
    desk, there, third = (procs.slice(gpus=rank).spawn("desk", Desk) for rank in range(3))
    places = {"here": procs.slice(gpus=0).spawn("here", Desk), "there": there, "third": third}
    answering = [places[way] for way in ways]
    for _ in range(20):
        assert desk.ask.call_one("value", *answering).get() == "yes"
        with pytest.raises(ValueError, match="no"):
            desk.ask.call_one("error", *answering).get()
    wait_until(lambda: desk.calls_kept.call_one().get() == 0, what="the end of all calls")


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("how", ["drop", "raise"])
def test_a_caller_is_told_that_nobody_has_its_port_any_more(
    spawn: Spawn, how: str, ways: list[str]
) -> None:
    procs = spawn(3)
    desk, owner = (procs.slice(gpus=0).spawn(name, Desk) for name in ("desk", "owner"))
    places = {
        way: owner.own.call_one(procs.slice(gpus=rank)).get()
        for rank, way in enumerate(("here", "there", "third"))
    }
    check_forgotten(desk.ask.call_one(how, *map(places.__getitem__, ways)).exception(), "desk.ask")
    assert desk.calls_kept.call_one().get() == 0


@pytest.mark.processes("a proc exits")
@pytest.mark.parametrize("keeps", [False, True])
def test_a_call_ends_with_the_process_that_alone_has_its_port(
    spawn: Spawn, faults: Faults, keeps: bool
) -> None:
    desk, workers = spawn(1).spawn("desk", Desk), spawn(2).spawn("workers", Desk)
    ask = desk.ask_and_keep if keeps else desk.ask
    answer = ask.call_one("keep", workers.slice(gpus=1))
    wait_until(lambda: workers.slice(gpus=1).count_kept.call_one().get(), what="the copy")
    workers.slice(gpus=1).exit.broadcast()
    faults.wait_for(1)
    if keeps:  # it has the port itself, too
        desk.answer_kept.call_one("late").get()
        assert answer.get() == "late"
    else:
        with pytest.raises(SupervisionError, match="exited with non-zero code 3"):
            answer.get()


def test_who_has_the_port_is_waited_for_while_others_let_it_go(spawn: Spawn) -> None:
    desk, workers = spawn(1).spawn("desk", Desk), spawn(3).spawn("workers", Desk)
    answer = desk.ask.call_one("late on rank 1", workers)
    wait_until(lambda: workers.slice(gpus=1).count_kept.call_one().get(), what="the copy")
    workers.count_kept.call().get()  # the others have handled it, too
    assert desk.calls_kept.call_one().get() == 1
    workers.slice(gpus=1).answer_kept.call_one("late").get()
    assert answer.get() == "late"
