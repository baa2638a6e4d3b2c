"""Futures: read many times, by many readers, with timeouts that cost nothing but the time."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import warnings
import weakref
from concurrent.futures import Future as Outcome
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo, Failing, Gate, open_channel
from helpers.waiting import wait_until
from monarch.actor import Actor, ActorError, Future, endpoint, returns_future
from monarch.telemetry import gather

if TYPE_CHECKING:
    from conftest import Spawn


def test_a_timed_out_get_leaves_the_call_running_and_a_later_get_returns_its_value(
    spawn: Spawn, tmp_path: Path
) -> None:
    gate = spawn(2).spawn("gate", Gate)
    door = tmp_path / "open"
    future = gate.wait_for_file.call(str(door))
    with pytest.raises(TimeoutError):
        future.get(timeout=0.05)
    with pytest.raises(TimeoutError):
        future.get(timeout=0)
    door.touch()
    assert future.get().values() == ["through", "through"]
    assert future.get().values() == ["through", "through"]


def test_a_later_await_returns_the_value_that_a_timed_out_one_missed(
    spawn: Spawn, tmp_path: Path
) -> None:
    gate = spawn(1).spawn("gate", Gate)
    door = tmp_path / "open"

    async def main() -> str:
        future = gate.wait_for_file.call_one(str(door))
        with pytest.raises((TimeoutError, asyncio.TimeoutError)):
            await asyncio.wait_for(future, 0.05)
        door.touch()
        return await asyncio.wait_for(future, 20)

    assert asyncio.run(main()) == "through"


def test_a_timeout_says_what_was_waited_for(spawn: Spawn, tmp_path: Path) -> None:
    gate = spawn(1).spawn("my_gate", Gate)
    future = gate.wait_for_file.call_one(str(tmp_path / "open"))
    with pytest.raises(TimeoutError) as caught:
        future.get(timeout=0.05)
    assert "my_gate" in str(caught.value)
    assert "wait_for_file" in str(caught.value)
    assert "0.05" in str(caught.value)
    (tmp_path / "open").touch()
    future.get()


def test_a_timeout_of_a_receive_says_so() -> None:
    _, receiver = open_channel()
    with pytest.raises(TimeoutError, match="recv|message|port"):
        receiver.recv().get(timeout=0.05)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), -0.5])
def test_an_invalid_timeout_is_refused_and_does_not_use_up_the_future(
    spawn: Spawn, timeout: float
) -> None:
    future = spawn(1).spawn("e", Echo).say.call_one(3)
    for read in (future.get, future.result):
        with pytest.raises(ValueError, match="timeout"):
            read(timeout=timeout)
    assert future.get() == 3


def test_result_is_get_and_exception_is_none_on_success(spawn: Spawn) -> None:
    future = spawn(1).spawn("e", Echo).say.call_one(3)
    assert future.result() == 3
    assert future.exception() is None
    assert future.get(timeout=0) == 3


def test_the_same_error_object_is_raised_each_time(spawn: Spawn) -> None:
    future = spawn(1).spawn("f", Failing).fail.call_one()
    error = future.exception()
    assert isinstance(error, ActorError)
    for _ in range(2):
        with pytest.raises(ActorError) as caught:
            future.get()
        assert caught.value is error


def test_an_exception_that_timed_out_is_not_the_result(spawn: Spawn, tmp_path: Path) -> None:
    future = spawn(1).spawn("gate", Gate).wait_for_file.call_one(str(tmp_path / "open"))
    try:
        assert isinstance(future.exception(timeout=0.05), TimeoutError)  # Monarch returns it
    except TimeoutError:
        pass  # raising it is as good
    (tmp_path / "open").touch()
    assert future.exception() is None


def test_many_threads_read_one_future(spawn: Spawn, tmp_path: Path) -> None:
    future = spawn(1).spawn("gate", Gate).wait_for_file.call_one(str(tmp_path / "open"))
    with ThreadPoolExecutor(16) as pool:
        readers = [pool.submit(future.get) for _ in range(16)]
        (tmp_path / "open").touch()
        assert [reader.result() for reader in readers] == ["through"] * 16


def test_many_threads_read_the_error_of_one_future(spawn: Spawn) -> None:
    future = spawn(1).spawn("f", Failing).fail.call_one("shared")
    with ThreadPoolExecutor(16) as pool:
        errors = list(pool.map(lambda _: future.exception(), range(16)))
    assert all(isinstance(error, ActorError) for error in errors)
    assert len({id(error) for error in errors}) == 1


def test_loops_on_several_threads_and_plain_threads_read_one_future_together(
    spawn: Spawn, tmp_path: Path
) -> None:
    future = spawn(1).spawn("gate", Gate).wait_for_file.call_one(str(tmp_path / "open"))

    def in_a_loop() -> list[str]:
        async def wait() -> str:
            return await future

        async def main() -> list[str]:
            return list(await asyncio.gather(wait(), wait(), future.as_asyncio()))

        return asyncio.run(main())

    with ThreadPoolExecutor(8) as pool:
        loops = [pool.submit(in_a_loop) for _ in range(4)]
        threads = [pool.submit(future.get) for _ in range(4)]
        (tmp_path / "open").touch()
        for loop in loops:
            assert loop.result() == ["through"] * 3
        for thread in threads:
            assert thread.result() == "through"


def test_gather_and_wait_take_futures_directly(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)

    async def main() -> list[Any]:
        return list(await asyncio.gather(*(echo.say.call_one(i) for i in range(10))))

    assert asyncio.run(main()) == list(range(10))


def test_a_cancelled_await_does_not_disturb_other_readers(spawn: Spawn, tmp_path: Path) -> None:
    future = spawn(1).spawn("gate", Gate).wait_for_file.call_one(str(tmp_path / "open"))

    async def wait() -> str:
        return await future

    async def main() -> str:
        impatient = asyncio.ensure_future(wait())
        patient = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        (tmp_path / "open").touch()
        return await patient

    assert asyncio.run(main()) == "through"
    assert future.get() == "through"


def test_done_says_whether_a_result_is_there_without_waiting(spawn: Spawn, tmp_path: Path) -> None:
    future = spawn(1).spawn("gate", Gate).wait_for_file.call_one(str(tmp_path / "open"))
    assert not future.done()
    (tmp_path / "open").touch()
    future.get()
    assert future.done()


def test_a_future_gets_done_without_anybody_reading_it(spawn: Spawn) -> None:
    future = spawn(1).spawn("e", Echo).say.call_one(3)
    arrived = threading.Event()
    future.add_done_callback(lambda _: arrived.set())
    assert arrived.wait(20)
    assert future.done()
    assert future.get(timeout=0) == 3


def test_callbacks_run_once_with_the_future_also_after_it_is_done(
    spawn: Spawn, tmp_path: Path
) -> None:
    future = spawn(1).spawn("gate", Gate).wait_for_file.call_one(str(tmp_path / "open"))
    calls: list[Future[str]] = []
    called = threading.Event()

    def note(finished: Future[str]) -> None:
        calls.append(finished)
        called.set()

    future.add_done_callback(note)
    assert calls == []
    (tmp_path / "open").touch()
    assert called.wait(20)
    assert future.get() == "through"
    late = threading.Event()
    future.add_done_callback(lambda _: late.set())
    assert late.wait(20)
    assert calls == [future]


def test_a_callback_of_a_failed_future_finds_the_error(spawn: Spawn) -> None:
    errors: list[Any] = []
    called = threading.Event()

    def note(finished: Future[Any]) -> None:
        errors.append(finished.exception(timeout=0))
        called.set()

    spawn(1).spawn("f", Failing).fail.call_one().add_done_callback(note)
    assert called.wait(20)
    assert isinstance(errors[0], ActorError)


def bootstrap() -> None:
    """A function that procs wait for."""


@pytest.mark.processes("telemetry of several processes")
def test_a_callback_may_wait_for_what_the_engine_goes_on_with_itself(spawn: Spawn) -> None:
    seen: Outcome[int] = Outcome()

    def wait(_: Future[int]) -> None:
        try:
            procs = spawn(1, bootstrap=bootstrap)
            said = procs.spawn("more", Echo).say.call_one(4).get()
            procs.stop().get()
            assert gather.read("procs").get().rows("procs")
            seen.set_result(said)
        except BaseException as error:
            seen.set_exception(error)

    spawn(1).spawn("e", Echo).say.call_one(3).add_done_callback(wait)
    assert seen.result() == 4


def test_a_raising_callback_is_reported_and_harms_no_other(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    future = spawn(1).spawn("e", Echo).say.call_one(3)
    called = threading.Event()

    def bad(_: Future[Any]) -> None:
        raise ValueError("a callback fails")

    future.add_done_callback(bad)
    future.add_done_callback(lambda _: called.set())
    assert called.wait(20)
    assert future.get() == 3
    assert [str(report.exc_value) for report in reported] == ["a callback fails"]


def test_a_result_that_has_arrived_is_not_lost_when_the_mesh_is_stopped(spawn: Spawn) -> None:
    procs = spawn(2)
    echo = procs.spawn("e", Echo)
    future = echo.say.call(3)
    # per-sender order: the answer to the first call has been written before this one
    echo.say.call(4).get()
    echo.stop().get()
    procs.stop().get()
    assert future.get().values() == [3, 3]


def test_get_in_a_running_loop_warns_and_still_returns(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)

    async def main() -> Any:
        with pytest.warns(UserWarning, match="await"):
            return echo.say.call_one(3).get()

    assert asyncio.run(main()) == 3


def test_as_asyncio_needs_a_running_loop_and_does_not_use_up_the_future(spawn: Spawn) -> None:
    future = spawn(1).spawn("e", Echo).say.call_one(3)
    with pytest.raises(RuntimeError):
        future.as_asyncio()
    assert future.get() == 3


def test_a_future_can_be_neither_made_nor_pickled(spawn: Spawn) -> None:
    with pytest.raises(TypeError):
        Future()
    echo = spawn(1).spawn("e", Echo)
    with pytest.raises(TypeError):
        echo.say.call_one(echo.say.call_one(1))


class Narcissus(Actor):
    @endpoint
    def look(self, me: Any) -> Any:
        return me.say.call_one(1).get()

    @endpoint
    def say(self, value: int) -> int:
        return value


class AsyncNarcissus(Actor):
    @endpoint
    async def look(self, me: Any) -> Any:
        return me.say.call_one(1).get()

    @endpoint
    async def say(self, value: int) -> int:
        return value


@pytest.mark.parametrize("kind", [Narcissus, AsyncNarcissus])
def test_an_actor_that_waits_for_itself_gets_an_error_that_says_what_to_do(
    spawn: Spawn, kind: Any
) -> None:
    actor = spawn(1).spawn("n", kind)
    with pytest.raises(ActorError) as caught:
        actor.look.call_one(actor).get()
    assert isinstance(caught.value.exception, RuntimeError)
    assert "say" in str(caught.value.exception)
    assert actor.say.call_one(2).get() == 2


def test_a_body_of_returns_future_starts_when_it_is_first_read_and_runs_once() -> None:
    runs: list[int] = []

    @returns_future
    async def body(x: int) -> int:
        runs.append(x)
        await asyncio.sleep(0)
        return x + 1

    unread = body(1)
    assert runs == []
    del unread
    future = body(2)
    assert future.get() == 3
    assert future.get() == 3
    assert runs == [2]

    async def main() -> int:
        return await body(5)

    assert asyncio.run(main()) == 6


def test_returns_future_takes_only_async_functions() -> None:
    with pytest.raises(TypeError, match="async"):
        returns_future(lambda: 1)  # type: ignore[arg-type,return-value,unused-ignore]


def test_an_error_in_a_body_of_returns_future_is_raised_to_every_reader() -> None:
    @returns_future
    async def body() -> None:
        raise KeyError("from the body")

    future = body()
    for _ in range(2):
        with pytest.raises(KeyError, match="from the body"):
            future.get()


def test_a_body_of_returns_future_may_await_calls(spawn: Spawn) -> None:
    echo = spawn(2).spawn("e", Echo)

    @returns_future
    async def total() -> int:
        return sum((await echo.say.call(3)).values())

    assert total().get() == 6


def test_a_waiting_reader_does_not_spin() -> None:
    """The processor time of a waiting thread is a small part of the time waited."""
    _, receiver = open_channel()
    began, before = time.monotonic(), time.thread_time()
    with pytest.raises(TimeoutError):
        receiver.recv().get(timeout=0.5)
    assert time.thread_time() - before < (time.monotonic() - began) / 2


def test_reading_a_future_outside_a_loop_gives_no_warning(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert echo.say.call_one(3).get() == 3


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("adverb", ["call", "call_one", "choose", "stream"])
def test_a_result_is_freed_with_the_last_reference_to_its_future(
    spawn: Spawn, adverb: str, read: bool
) -> None:
    echo = spawn(1).spawn("echo", Echo)
    gc.collect()
    gc.disable()  # nothing may be left for it to find
    try:
        made = getattr(echo.say, adverb)(b"x")
        future = next(made) if adverb == "stream" else made
        if read:
            future.get()
        else:
            wait_until(future.done, what="the answer")
        freed = weakref.ref(future)
        del future, made
        wait_until(lambda: freed() is None, what="the end of the future")
    finally:
        gc.enable()
