"""The adverbs: what each returns, what each does with errors, what is checked before anything is
sent.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import (
    Counter,
    Echo,
    Failing,
    FailsToUnpickle,
    KeywordOnlyError,
    Ranks,
    Recorder,
    Unpicklable,
    open_channel,
)
from helpers.unread import unread_errors
from helpers.waiting import wait_until
from monarch._core.actors.endpoint import ADVERBS
from monarch.actor import (
    Accumulator,
    Actor,
    ActorError,
    Endpoint,
    Port,
    SupervisionError,
    ValueMesh,
    as_endpoint,
    current_rank,
    endpoint,
    send,
    this_host,
)

pytestmark = pytest.mark.both

if TYPE_CHECKING:
    from conftest import Spawn


# call, call_one, choose


def test_call_one_returns_the_bare_value(spawn: Spawn) -> None:
    assert spawn(1).spawn("c", Counter, 4).add.call_one(3).get() == 7


def test_call_one_on_several_ranks_is_refused_at_once(spawn: Spawn) -> None:
    counters = spawn(4).spawn("c", Counter)
    with pytest.raises(ValueError, match="4"):
        counters.add.call_one()
    assert counters.get.call().get().values() == [0, 0, 0, 0]


def test_call_one_works_on_one_rank_that_has_dimensions(spawn: Spawn) -> None:
    counters = spawn({"a": 2, "b": 2}).spawn("c", Counter)
    assert counters.slice(a=slice(1, 2), b=slice(0, 1)).add.call_one(2).get() == 2
    assert counters.get.call().get().values() == [0, 0, 2, 0]


def test_call_on_a_slice_reaches_only_its_ranks(spawn: Spawn) -> None:
    counters = spawn(3).spawn("c", Counter)
    assert counters.slice(gpus=slice(1, 3)).add.call(5).get().values() == [5, 5]
    assert counters.get.call().get().values() == [0, 5, 5]


def test_choose_reaches_one_rank_for_each_call_and_in_time_all_of_them(spawn: Spawn) -> None:
    counters = spawn(3).spawn("c", Counter)
    for _ in range(60):
        assert counters.add.choose(1).get() >= 1
    counts = counters.get.call().get().values()
    assert sum(counts) == 60
    assert all(count > 0 for count in counts)


def test_choose_gives_the_position_in_the_mesh_that_was_addressed(spawn: Spawn) -> None:
    ranks = spawn({"a": 2, "b": 2}).spawn("r", Ranks)
    seen = [ranks.slice(a=1).message_rank.choose().get() for _ in range(10)]
    assert all(set(rank) == {"b"} for rank in seen)


def test_a_message_is_sent_when_the_adverb_is_called_and_not_when_the_future_is_read(
    spawn: Spawn,
) -> None:
    counters = spawn(1).spawn("c", Counter)
    future = counters.add.call_one(5)
    assert counters.get.call_one().get() == 5
    assert future.get() == 5


def test_dropping_a_future_does_not_cancel_the_call(spawn: Spawn) -> None:
    counters = spawn(1).spawn("c", Counter)
    counters.add.call_one(5)
    assert counters.get.call_one().get() == 5


def test_later_changes_to_an_argument_are_not_seen_by_the_receiver(spawn: Spawn) -> None:
    recorder = spawn(1).spawn("r", Recorder)
    value = [1]
    first = recorder.record.call_one(value)
    value.append(2)
    first.get()
    assert recorder.recorded.call_one().get() == [[1]]


def test_later_changes_to_a_constructor_argument_are_not_seen_by_the_actor(spawn: Spawn) -> None:
    class Holder(Actor):
        def __init__(self, value: list[int]) -> None:
            self.value = value

        @endpoint
        def get(self) -> list[int]:
            return self.value

    value = [1]
    holder = spawn(1).spawn("h", Holder, value)
    value.append(2)
    assert holder.get.call_one().get() == [1]


def test_equal_values_of_two_ranks_are_two_objects(spawn: Spawn) -> None:
    values = spawn(2).spawn("e", Echo).say.call([1, 2]).get()
    assert values.get(0) == values.get(1)
    assert values.get(0) is not values.get(1)
    values.get(0).append(3)
    assert values.get(1) == [1, 2]


def test_a_value_mesh_is_indexed_sliced_and_bounds_checked(spawn: Spawn) -> None:
    values = spawn({"a": 2, "b": 2}).spawn("r", Ranks).instance_rank.call().get()
    assert values.item(a=1, b=0) == {"a": 1, "b": 0}
    assert values[1, 0] == {"a": 1, "b": 0}
    assert values.slice(a=1, b=1).item() == {"a": 1, "b": 1}
    assert values.slice(a=1).values() == [{"a": 1, "b": 0}, {"a": 1, "b": 1}]
    assert values.get(3) == {"a": 1, "b": 1}
    assert [point.rank for point, _ in values] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="99"):
        values.get(99)
    with pytest.raises(IndexError):
        values.item(a=0, b=2)
    with pytest.raises(KeyError):
        values.item(a=0)
    with pytest.raises(KeyError):
        values.item(a=0, b=0, c=0)


def test_a_value_mesh_can_be_sent_and_returned(spawn: Spawn) -> None:
    echo = spawn(2).spawn("e", Echo)
    values = echo.say.call("v").get()
    returned = echo.slice(gpus=0).say.call_one(values).get()
    assert isinstance(returned, ValueMesh)
    assert returned.values() == ["v", "v"]
    assert dict(returned.extent) == {"gpus": 2}


def test_many_calls_in_flight_are_all_answered_in_their_own_futures(spawn: Spawn) -> None:
    echo = spawn(2).spawn("e", Echo)
    futures = [echo.say.call(i) for i in range(500)]
    assert [future.get().values() for future in futures] == [[i, i] for i in range(500)]


def test_adverbs_may_be_used_from_many_threads_at_once(spawn: Spawn) -> None:
    counters = spawn(1).spawn("c", Counter)
    results: list[int] = []

    def work() -> None:
        for _ in range(50):
            results.append(counters.add.call_one(1).get())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(1, 401))


def test_a_large_argument_arrives_whole(spawn: Spawn) -> None:
    echo = spawn(2).spawn("e", Echo)
    big = bytes(range(256)) * 40_000
    assert all(value == big for value in echo.say.call(big).get().values())


# arguments are checked at the caller


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1,), {"key": 1}),
        ((1, 2), {}),
        ((), {"first": 1, "second": 2, "key": 3}),
        ((1, 2), {"second": 3, "key": 3}),
    ],
)
def test_wrong_arguments_raise_type_error_in_every_adverb_and_nothing_is_sent(
    spawn: Spawn, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    counters = spawn(1).spawn("c", Counter)
    describe: Any = counters.describe
    add: Any = counters.add
    for adverb in ADVERBS - {"rref"}:  # which needs torch
        with pytest.raises(TypeError):
            getattr(describe, adverb)(*args, **kwargs)
        with pytest.raises(TypeError, match="too|unexpected"):
            getattr(add, adverb)(1, too=2)
    assert counters.get.call_one().get() == 0


def test_every_kind_of_parameter_arrives_as_in_a_plain_call(spawn: Spawn) -> None:
    counters = spawn(1).spawn("c", Counter)
    assert (
        counters.describe.call_one(1, 2, 3, 4, key=5, b=7, a=6).get()
        == "1 2 (3, 4) 5 [('a', 6), ('b', 7)]"
    )
    assert (
        counters.describe.call_one(1, second=2, key=3, first=9).get() == "1 2 () 3 [('first', 9)]"
    )


def test_wrong_constructor_arguments_raise_at_spawn(spawn: Spawn) -> None:
    procs: Any = spawn(1)
    with pytest.raises(TypeError):
        procs.spawn("c", Counter, 1, 2, 3)
    with pytest.raises(TypeError, match="valeu"):
        procs.spawn("c", Counter, valeu=1)


def test_an_unpicklable_argument_raises_at_the_caller_and_nothing_is_sent(spawn: Spawn) -> None:
    recorder = spawn(2).spawn("r", Recorder)
    for value in (Unpicklable(), threading.Lock(), (i for i in range(3))):
        with pytest.raises((TypeError, pickle.PicklingError)):
            recorder.record.call(value)
        with pytest.raises((TypeError, pickle.PicklingError)):
            recorder.record.broadcast(value)
    assert recorder.recorded.call().get().values() == [[], []]


def test_an_argument_that_cannot_be_rebuilt_is_an_error_of_the_call(
    spawn: Spawn,
) -> None:
    failing = spawn(1).spawn("f", Failing)
    with pytest.raises(ActorError) as caught:
        failing.take.call_one(FailsToUnpickle()).get()
    assert "no rebuilding at the receiver" in str(caught.value)
    assert failing.alive.call_one().get()


# broadcast


def test_broadcast_returns_none_and_reaches_every_rank_of_the_slice(spawn: Spawn) -> None:
    counters = spawn(3).spawn("c", Counter)
    result: object = counters.slice(gpus=slice(0, 2)).add.broadcast(4)  # type: ignore[func-returns-value]
    assert result is None
    assert counters.get.call().get().values() == [4, 4, 0]


def test_one_broadcast_gives_each_rank_an_object_of_its_own(spawn: Spawn) -> None:
    class Appender(Actor):
        @endpoint
        def append(self, values: list[int], value: int) -> list[int]:
            values.append(value)
            return values

    assert spawn(2).spawn("a", Appender).append.call([1], 2).get().values() == [[1, 2], [1, 2]]


# stream


def test_stream_yields_one_future_for_each_rank(spawn: Spawn) -> None:
    ranks = spawn(3).spawn("r", Ranks)
    values = [future.get() for future in ranks.instance_rank.stream()]
    assert sorted(value["gpus"] for value in values) == [0, 1, 2]


def test_stream_yields_results_in_the_order_of_arrival(spawn: Spawn, tmp_path: Path) -> None:
    class Waits(Actor):
        @endpoint
        def answer_in_turn(self, doors: list[str]) -> int:
            rank = current_rank().rank
            while doors[rank] and not os.path.exists(doors[rank]):
                time.sleep(0.005)
            return rank

    first, second = tmp_path / "first", tmp_path / "second"
    stream = spawn(3).spawn("w", Waits).answer_in_turn.stream([str(second), str(first), ""])
    assert next(stream).get() == 2
    first.touch()
    assert next(stream).get() == 1
    second.touch()
    assert next(stream).get() == 0
    with pytest.raises(StopIteration):
        next(stream)


def test_the_futures_of_a_stream_can_be_awaited_and_read_in_any_order(spawn: Spawn) -> None:
    ranks = spawn(3).spawn("r", Ranks)

    async def main() -> list[dict[str, int]]:
        futures = list(ranks.instance_rank.stream())
        return [await future for future in reversed(futures)]

    assert sorted(value["gpus"] for value in asyncio.run(main())) == [0, 1, 2]


def test_stream_sends_at_once_even_without_iteration(spawn: Spawn) -> None:
    counters = spawn(2).spawn("c", Counter)
    counters.add.stream(3)
    assert counters.get.call().get().values() == [3, 3]


def test_a_stream_gives_the_rank_of_each_result(spawn: Spawn) -> None:
    ranks = spawn({"a": 2, "b": 2}).spawn("r", Ranks)
    seen: list[int] = []
    for future in ranks.slice(a=1).instance_rank.stream():
        value = future.get()
        assert future.rank is not None
        assert dict(future.rank.extent) == {"b": 2}
        assert future.rank["b"] == value["b"]
        seen.append(value["b"])
    assert sorted(seen) == [0, 1]


def test_a_stream_gives_the_rank_of_each_failure(spawn: Spawn) -> None:
    failing = spawn(3).spawn("f", Failing, (1,))
    failed = [
        future.rank for future in failing.fail_by_rank.stream() if future.exception() is not None
    ]
    assert [dict(rank) for rank in failed if rank is not None] == [{"gpus": 1}]


def test_each_future_of_a_stream_raises_on_its_own(spawn: Spawn) -> None:
    failing = spawn(3).spawn("f", Failing, (1,))
    outcomes = [future.exception() or future.get() for future in failing.fail_by_rank.stream()]
    assert sorted(outcome for outcome in outcomes if isinstance(outcome, int)) == [0, 2]
    (error,) = [outcome for outcome in outcomes if not isinstance(outcome, int)]
    assert isinstance(error, ActorError)
    assert failing.alive.call().get().values() == [True, True, True]


# send and Accumulator


def test_send_delivers_the_result_of_every_rank_to_a_port(spawn: Spawn) -> None:
    echo = spawn(3).spawn("e", Echo)
    port, receiver = open_channel()
    send(echo.say, ("x",), {}, port=port)
    assert [receiver.recv().get() for _ in range(3)] == ["x"] * 3


def test_send_to_one_chosen_rank_gives_one_result(spawn: Spawn) -> None:
    counters = spawn(3).spawn("c", Counter)
    port, receiver = open_channel()
    send(counters.add, (), {"by": 2}, port=port, selection="choose")
    assert receiver.recv().get() == 2
    assert sorted(counters.get.call().get().values()) == [0, 0, 2]


def test_send_without_a_port_drops_the_result(spawn: Spawn) -> None:
    counters = spawn(2).spawn("c", Counter)
    send(counters.add, (2,), {})
    assert counters.get.call().get().values() == [2, 2]


def test_send_raises_a_remote_exception_at_the_port(spawn: Spawn) -> None:
    failing = spawn(1).spawn("f", Failing)
    port, receiver = open_channel()
    send(failing.fail, ("through a port",), {}, port=port)
    with pytest.raises(ActorError, match="through a port") as caught:
        receiver.recv().get()
    assert isinstance(caught.value.exception, ValueError)
    assert failing.alive.call_one().get()


def test_send_refuses_an_unknown_selection(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)
    with pytest.raises(ValueError, match="foo"):
        send(echo.say, (1,), {}, selection="foo")


def test_an_accumulator_folds_the_results_of_all_ranks(spawn: Spawn) -> None:
    counters = spawn(4).spawn("c", Counter, 2)
    total = Accumulator(counters.add, 100, lambda a, b: a + b)
    assert total.accumulate(3).get() == 120
    assert total.accumulate(by=1).get() == 124

    async def main() -> int:
        return await total.accumulate(0)

    assert asyncio.run(main()) == 124


def test_an_accumulator_raises_the_error_of_a_rank(spawn: Spawn) -> None:
    failing = spawn(3).spawn("f", Failing, (2,))
    with pytest.raises(ActorError, match="rank 2 fails"):
        Accumulator(failing.fail_by_rank, 0, lambda a, b: a + b).accumulate().get()
    assert failing.alive.call().get().values() == [True] * 3


# errors of endpoints


def test_an_exception_reaches_the_caller_as_actor_error_and_the_actor_serves_on(
    spawn: Spawn,
) -> None:
    failing = spawn(1).spawn("worker", Failing)
    with pytest.raises(ActorError) as caught:
        failing.fail.call_one("what went wrong").get()
    assert isinstance(caught.value.exception, ValueError)
    assert caught.value.exception.args == ("what went wrong",)
    assert "worker.fail" in caught.value.message
    assert failing.alive.call_one().get()


@pytest.mark.parametrize("adverb", ["call", "call_one", "choose"])
def test_every_adverb_with_one_result_raises_the_error_at_get(spawn: Spawn, adverb: str) -> None:
    failing = spawn(1).spawn("f", Failing)
    with pytest.raises(ActorError, match="on purpose"):
        getattr(failing.fail, adverb)().get()
    error = getattr(failing.fail, adverb)().exception()
    assert isinstance(error, ActorError)
    assert failing.alive.call_one().get()


def test_the_remote_traceback_can_be_read_at_the_caller(spawn: Spawn) -> None:
    with pytest.raises(ActorError) as caught:
        spawn(1).spawn("f", Failing).fail_with_cause.call_one().get()
    text = str(caught.value)
    assert "actors.py" in text
    assert "in fail_with_cause" in text
    assert 'raise ValueError("the second problem")' in text
    assert "the first problem" in text
    assert "direct cause" in text
    assert caught.value.exception_formatted in text
    assert text.index("the first problem") < text.index(
        "the second problem\n" if "the second problem\n" in text else "ValueError"
    )


def test_the_remote_traceback_does_not_show_the_frames_of_the_engine(spawn: Spawn) -> None:
    with pytest.raises(ActorError) as caught:
        spawn(1).spawn("f", Failing).fail.call_one().get()
    assert "/monarch/_core/" not in caught.value.exception_formatted


def test_call_raises_the_error_of_a_failing_rank_and_the_others_go_on(spawn: Spawn) -> None:
    failing = spawn(4).spawn("f", Failing, (1, 3))
    with pytest.raises(ActorError, match="rank [13] fails"):
        failing.fail_by_rank.call().get()
    assert failing.alive.call().get().values() == [True] * 4


def test_call_does_not_wait_for_slow_ranks_once_one_has_failed(
    spawn: Spawn, tmp_path: Path
) -> None:
    class Uneven(Actor):
        @endpoint
        def work(self, door: str) -> None:
            if current_rank().rank == 1:
                raise ValueError("rank 1 is quick to fail")
            while not os.path.exists(door):
                time.sleep(0.005)

    future = spawn(2).spawn("u", Uneven).work.call(str(tmp_path / "open"))
    with pytest.raises(ActorError, match="quick to fail"):
        future.get()
    (tmp_path / "open").touch()


def test_an_actor_error_says_which_rank_it_is_about(spawn: Spawn) -> None:
    failing = spawn(4).spawn("f", Failing, (2,))
    with pytest.raises(ActorError) as caught:
        failing.fail_by_rank.call().get()
    assert (
        "2/4" in str(caught.value)
        or "'gpus': 2" in str(caught.value)
        or "gpus=2" in str(caught.value)
    )


def test_an_unread_error_hurts_no_other_call(spawn: Spawn) -> None:
    failing = spawn(1).spawn("f", Failing)
    with unread_errors() as warned:
        for _ in range(3):
            failing.fail.call_one("unread")
        assert failing.alive.call_one().get()
        warned.wait_for(3)


@pytest.mark.parametrize(
    "kind",
    ["odd", "keyword_only", "holds_a_lock", "raises_when_rebuilt", "stop_iteration", "local_class"],
)
def test_an_exception_of_any_make_arrives_as_actor_error_and_the_actor_serves_on(
    spawn: Spawn, kind: str
) -> None:
    failing = spawn(1).spawn("f", Failing)
    with pytest.raises(ActorError) as caught:
        failing.fail_oddly.call_one(kind).get()
    assert isinstance(caught.value.exception, BaseException)
    words = {
        "odd": "OddError: 7: seven",
        "keyword_only": "KeywordOnlyError: because",
        "holds_a_lock": "HoldsALock: locked up",
        "raises_when_rebuilt": "RaisesWhenRebuilt: first words",
        "stop_iteration": "StopIteration: 3",
        "local_class": "LocalError: made inside a function",
    }
    assert words[kind] in str(caught.value)
    assert failing.alive.call_one().get()


def test_an_exception_with_required_keywords_keeps_its_type_and_its_attributes(
    spawn: Spawn,
) -> None:
    with pytest.raises(ActorError) as caught:
        spawn(1).spawn("f", Failing).fail_oddly.call_one("keyword_only").get()
    assert isinstance(caught.value.exception, KeywordOnlyError)
    assert caught.value.exception.reason == "because"


def test_an_unpicklable_result_is_an_error_of_the_call_and_the_actor_serves_on(
    spawn: Spawn,
) -> None:
    failing = spawn(1).spawn("f", Failing)
    for future in (failing.return_unpicklable.call_one(), failing.return_lock.call_one()):
        with pytest.raises(ActorError) as caught:
            future.get()
        assert isinstance(caught.value.exception, TypeError)
    assert failing.alive.call_one().get()


def test_an_actor_error_can_be_pickled(spawn: Spawn) -> None:
    error = spawn(1).spawn("f", Failing).fail.call_one("original").exception()
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, ActorError)
    assert isinstance(copy.exception, ValueError)
    assert str(copy) == str(error)


def test_an_error_of_a_downstream_call_shows_the_whole_way(spawn: Spawn) -> None:
    class Middle(Actor):
        @endpoint
        def ask(self, other: Failing) -> Any:
            return other.fail.call_one("deep inside").get()

    procs = spawn(1)
    failing = procs.spawn("deep", Failing)
    with pytest.raises(ActorError) as caught:
        procs.spawn("middle", Middle).ask.call_one(failing).get()
    assert isinstance(caught.value.exception, ActorError)
    assert "deep inside" in str(caught.value)
    assert "middle.ask" in str(caught.value)
    assert "deep.fail" in str(caught.value)


# endpoints and classes


def test_an_endpoint_of_a_mesh_is_the_same_object_each_time(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)
    assert echo.say is echo.say


def test_an_endpoint_handle_has_all_adverbs(spawn: Spawn) -> None:
    say: Endpoint[Any, Any] = spawn(1).spawn("e", Echo).say
    assert len(ADVERBS) >= 6
    for name in ADVERBS:
        assert callable(getattr(say, name))


# of torch, which this is the first to import where the test runs alone
@pytest.mark.may_keep("threads")
def test_rref_of_an_endpoint_that_does_not_say_its_results_is_refused(spawn: Spawn) -> None:
    pytest.importorskip("torch", reason="distributed tensors need torch")
    say: Any = spawn(1).spawn("e", Echo).say
    with pytest.raises(NotImplementedError, match="propagate"):
        say.rref(1)


def test_as_endpoint_of_an_async_method_of_a_sync_actor_says_what_to_write_instead(
    spawn: Spawn,
) -> None:
    class Plain(Actor):
        @endpoint
        def ready(self) -> bool:
            return True

        async def fetch(self) -> int:
            return 1

    plain = spawn(1).spawn("plain", Plain)
    with pytest.raises(
        ValueError, match=r"Write `def fetch`.*or make all endpoints of the class `async def`"
    ):
        as_endpoint(plain.fetch)
    assert plain.ready.call_one().get()


def test_as_endpoint_gives_adverbs_to_an_undecorated_method(spawn: Spawn) -> None:
    class Plain(Actor):
        @endpoint
        def decorated(self) -> int:
            return 1

        def undecorated(self, x: int) -> int:
            return x + 1

        def answers(self, port: Port[int], x: int) -> None:
            port.send(x + 2)

    plain = spawn(2).spawn("p", Plain)
    assert as_endpoint(plain.undecorated).call(1).get().values() == [2, 2]
    handle: Any = as_endpoint(plain.answers, explicit_response_port=True)  # type: ignore[call-overload,unused-ignore]
    assert handle.call(1).get().values() == [3, 3]
    with pytest.raises(RuntimeError, match="endpoint"):
        plain.undecorated(1)
    with pytest.raises(ValueError):
        as_endpoint(len)


def test_endpoints_are_inherited_and_overridden_like_methods(spawn: Spawn) -> None:
    class Base(Actor):
        @endpoint
        def kept(self) -> str:
            return "base"

        @endpoint
        def replaced(self) -> str:
            return "base"

        @endpoint
        def removed(self) -> str:
            return "base"

    class Derived(Base):
        @endpoint
        def replaced(self) -> str:
            return "derived"

        def removed(self) -> str:  # type: ignore[override,unused-ignore]
            return "plain"

    derived: Any = spawn(1).spawn("d", Derived)
    assert derived.kept.call_one().get() == "base"
    assert derived.replaced.call_one().get() == "derived"
    with pytest.raises((RuntimeError, AttributeError)):
        derived.removed.call_one().get()


def test_only_subclasses_of_actor_can_be_spawned(spawn: Spawn) -> None:
    class NotAnActor:
        pass

    procs: Any = spawn(1)
    with pytest.raises(ValueError, match="NotAnActor.*Actor"):
        procs.spawn("n", NotAnActor)


@pytest.mark.parametrize("name", ["stop", "size", "slice", "initialized", "extent"])
def test_an_endpoint_name_that_a_mesh_uses_is_refused_before_anything_is_created(
    spawn: Spawn, name: str, tmp_path: Any
) -> None:
    def init(self: Any, folder: str) -> None:
        open(f"{folder}/created", "w").close()

    def method(self: Any) -> int:
        return 1

    method.__name__ = name
    procs = spawn(1)
    echo = procs.spawn("e", Echo)

    def define_and_spawn() -> None:
        clash = type("Clash", (Actor,), {"__init__": init, name: endpoint(method)})
        procs.spawn("c", clash, str(tmp_path))

    with pytest.raises(ValueError, match=name):
        define_and_spawn()
    assert echo.say.call_one(1).get() == 1
    assert list(tmp_path.iterdir()) == []


def test_an_async_generator_is_refused_as_an_endpoint_when_the_class_is_defined() -> None:
    with pytest.raises((TypeError, ValueError), match="generator|yield"):

        class Yields(Actor):
            @endpoint
            async def numbers(self) -> Any:
                yield 1


def test_a_mesh_used_on_another_thread_after_the_first_ended_still_works() -> None:
    procs = this_host().spawn_procs(per_host={"n": 1})
    results: list[Any] = []
    first = threading.Thread(target=lambda: results.append(procs.spawn("e", Echo)))
    first.start()
    first.join()
    second = threading.Thread(target=lambda: results.append(results[0].say.call_one(7).get()))
    second.start()
    second.join()
    procs.stop().get()
    assert results[1] == 7


def test_system_exit_in_an_endpoint_ends_the_actor_and_not_the_process(
    spawn: Spawn, faults: Any
) -> None:
    procs = spawn(1)
    failing = procs.spawn("f", Failing)
    other = procs.spawn("e", Echo)
    with pytest.raises(SupervisionError):
        failing.exit_by_exception.call_one().get()
    faults.wait_for(1)
    assert other.say.call_one("still here").get() == "still here"


def test_a_burst_of_broadcasts_is_handled_completely(spawn: Spawn) -> None:
    counters = spawn(2).spawn("c", Counter)
    for _ in range(2000):
        counters.add.broadcast(1)
    wait_until(
        lambda: counters.get.call().get().values() == [2000, 2000],
        what="2000 increments on both ranks",
    )
