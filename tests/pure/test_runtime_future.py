from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import pickle
import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers.answers import Wire
from helpers.borrowing import borrowed
from helpers.leaks import nothing_left
from monarch._core.calls.callbacks import CallbackThread
from monarch._core.calls.future import Future
from monarch._core.calls.pending import Described, FutureState, PendingOperation, subscribe
from monarch._core.calls.promise import Promise, completed, map_future
from monarch._core.calls.waiting import steps_in_loop, wait_in_loop
from monarch._core.net.waiter import put_back, take_waiter
from monarch._patterns.returns_future import returns_future
from monarch.errors import DeadlockError

PATIENCE = 20.0


class Boom(Exception):
    pass


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    settle_callbacks()  # its thread lives as long as the process
    put_back(take_waiter())
    with nothing_left():
        yield


def settle_callbacks() -> None:
    """Wait until the callbacks so far have run."""
    done = threading.Event()
    completed().add_done_callback(lambda _: done.set())
    assert done.wait(PATIENCE)


def pending(source: PendingOperation | None = None) -> Future[Any]:
    return Promise(source).future


def failed(error: BaseException) -> Future[Any]:
    future = pending()
    Promise.of(future).reject(error)
    return future


class Readers:
    """Threads that read; waits until each of them really waits."""

    def __init__(
        self, future: Future[Any], count: int, read: Callable[[Future[Any]], Any] = Future.get
    ) -> None:
        self.future = future
        self.outcomes: list[Any] = []
        self.threads = [threading.Thread(target=self._run, args=(read,)) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _run(self, read: Callable[[Future[Any]], Any]) -> None:
        try:
            self.outcomes.append(read(self.future))
        except BaseException as error:
            self.outcomes.append(error)

    def wait_until_they_wait(self) -> None:
        for _ in range(2_000):
            if len(self.future._callbacks) >= len(self.threads):
                return
            self.threads[0].join(0.01)
        raise AssertionError("they do not wait")

    def join(self) -> list[Any]:
        for thread in self.threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self.threads)
        return self.outcomes


class Recorder(PendingOperation):
    """A source that writes down what it hears."""

    def __init__(self, deadlock: str | None = None) -> None:
        self.heard: list[str] = []
        self.reason = deadlock

    def describe(self) -> str:
        return "an answer of nobody"

    def deadlock(self) -> str | None:
        return self.reason

    def observed(self, future: FutureState, loop: asyncio.AbstractEventLoop | None) -> None:
        self.heard.append("blocked" if loop is None else "awaited")

    def abandoned(self, future: FutureState) -> None:
        self.heard.append("abandoned")


# reading in threads


def test_programs_cannot_make_futures() -> None:
    with pytest.raises(TypeError, match="cannot be constructed"):
        Future()


def test_a_future_cannot_be_sent() -> None:
    with pytest.raises(TypeError, match="Port"):
        pickle.dumps(completed(1))


def test_a_done_future_gives_its_value_as_often_as_asked() -> None:
    future = completed([1])
    assert future.get() is future.get(timeout=0) is future.result()
    assert future.done()
    assert future.exception() is None


def test_a_failed_future_raises_the_same_error_as_often_as_asked() -> None:
    error = Boom("no")
    future = failed(error)
    for _ in range(3):
        with pytest.raises(Boom) as caught:
            future.get()
        assert caught.value is error
    assert future.exception() is error


def test_the_traceback_of_an_error_does_not_grow_with_each_reader() -> None:
    future = failed(Boom("no"))
    lengths = []
    for _ in range(5):
        with pytest.raises(Boom) as caught:
            future.get()
        lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(lengths)) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)])
def test_an_error_that_is_no_exception_reaches_the_reader(error: BaseException) -> None:
    future = failed(error)
    with pytest.raises(type(error)):
        future.get()
    assert future.exception() is error


@pytest.mark.parametrize("future", [pending(), completed(0), completed(False), failed(Boom())])
def test_a_future_is_true_with_any_result(future: Future[Any]) -> None:
    assert bool(future)  # as any other future of Python: `if future:` asks whether there is one


def test_many_threads_wait_for_one_future() -> None:
    future = pending()
    readers = Readers(future, 20)
    readers.wait_until_they_wait()
    value = object()
    Promise.of(future).resolve(value)
    assert readers.join() == [value] * 20


def test_many_threads_hear_of_one_error() -> None:
    future = pending()
    readers = Readers(future, 10)
    readers.wait_until_they_wait()
    error = Boom()
    Promise.of(future).reject(error)
    assert readers.join() == [error] * 10


def test_readers_that_come_while_it_completes_all_get_the_value() -> None:
    for _ in range(50):
        future = pending()
        readers = Readers(future, 4)
        Promise.of(future).resolve(7)
        assert readers.join() == [7] * 4


def test_the_first_outcome_counts() -> None:
    future = pending()
    Promise.of(future).resolve(1)
    Promise.of(future).resolve(2)
    Promise.of(future).reject(Boom())
    assert future.get() == 1
    other = failed(Boom("first"))
    Promise.of(other).resolve(3)
    with pytest.raises(Boom, match="first"):
        other.get()


@pytest.mark.parametrize("timeout", [0, 0.01, 0.02, True])
def test_a_wait_that_takes_too_long_raises_a_timeout_error_and_leaves_nothing(
    timeout: float,
) -> None:
    future = pending(Described("the answer of trainers.train()"))
    for read in (future.get, future.exception, future.result):
        with pytest.raises(TimeoutError, match=r"waited .*s for the answer of trainers\.train\(\)"):
            read(timeout=timeout if timeout is not True else 0)
    assert future._callbacks == ()
    Promise.of(future).resolve(5)
    assert future.get(timeout=0) == 5


@pytest.mark.parametrize(
    "timeout", [-1, -0.001, float("inf"), float("-inf"), float("nan"), "1", [], object()]
)
def test_an_invalid_timeout_is_refused_whether_the_future_is_done_or_not(timeout: Any) -> None:
    for future in (pending(), completed(1), failed(Boom())):
        with pytest.raises(ValueError, match="invalid timeout"):
            future.get(timeout=timeout)
        with pytest.raises(ValueError, match="invalid timeout"):
            future.exception(timeout=timeout)


def test_a_timeout_of_centuries_is_waited_for() -> None:
    future = pending()
    readers = Readers(future, 1, lambda future: future.get(timeout=1e12))
    readers.wait_until_they_wait()
    Promise.of(future).resolve(1)
    assert readers.join() == [1]


def test_a_future_shows_its_state_and_what_it_waits_for() -> None:
    future = pending(Described("trainers.train()"))
    assert repr(future) == "<Future pending trainers.train()>"
    Promise.of(future).resolve(1)
    assert repr(future) == "<Future done trainers.train()>"
    assert repr(failed(Boom())) == "<Future failed>"


# decoding


def test_a_value_is_decoded_once_in_the_thread_of_the_first_reader() -> None:
    decoded: list[int] = []
    future = pending()
    Promise.of(future).resolve(
        3,
        lambda value: (decoded.append(threading.get_ident()), value * 2)[1],  # type: ignore[func-returns-value]
    )
    assert future.done()
    assert not decoded
    assert [future.get() for _ in range(3)] == [6, 6, 6]
    assert decoded == [threading.get_ident()]


def test_many_readers_decode_once() -> None:
    decoded: list[None] = []
    future = pending()
    readers = Readers(future, 16)
    readers.wait_until_they_wait()
    Promise.of(future).resolve(3, lambda value: (decoded.append(None), [value])[1])  # type: ignore[func-returns-value]
    outcomes = readers.join()
    assert len(decoded) == 1
    assert all(outcome is outcomes[0] for outcome in outcomes)


def test_an_error_of_decoding_is_the_outcome_for_every_reader() -> None:
    tries: list[None] = []

    def decode(value: Any) -> Any:
        tries.append(None)
        raise Boom("unreadable")

    future = pending()
    Promise.of(future).resolve(b"", decode)
    errors = [future.exception(), future.exception()]
    assert isinstance(errors[0], Boom)
    assert errors[0] is errors[1]
    assert len(tries) == 1


def test_ctrl_c_during_decoding_leaves_the_value_for_the_next_reader() -> None:
    interrupts = [KeyboardInterrupt()]

    def decode(value: int) -> int:
        if interrupts:
            raise interrupts.pop()
        return value + 1

    future = pending()
    Promise.of(future).resolve(1, decode)
    with pytest.raises(KeyboardInterrupt):
        future.get()
    assert future.get() == 2


# callbacks


def test_callbacks_run_in_order_on_one_other_thread_with_the_future() -> None:
    future = pending()
    seen: list[tuple[int, Any, str]] = []
    for i in range(5):
        future.add_done_callback(
            lambda f, i=i: seen.append((i, f, threading.current_thread().name))  # type: ignore[misc]
        )
    settle_callbacks()
    assert not seen
    Promise.of(future).resolve(1)
    settle_callbacks()
    assert seen == [(i, future, "monarch-callbacks") for i in range(5)]


def test_a_callback_of_a_done_future_runs_at_once() -> None:
    seen: list[Any] = []
    for future in (completed(4), failed(Boom())):
        future.add_done_callback(seen.append)
        settle_callbacks()
        assert seen[-1] is future


def test_callbacks_run_in_order_of_completion() -> None:
    futures = [pending() for _ in range(5)]
    order: list[int] = []
    for i, future in enumerate(futures):
        future.add_done_callback(lambda _, i=i: order.append(i))  # type: ignore[misc]
    for i in (3, 0, 4, 1, 2):
        Promise.of(futures[i]).resolve(None)
    settle_callbacks()
    assert order == [3, 0, 4, 1, 2]


def test_a_callback_sees_the_context_variables_of_who_added_it() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []
    future = pending()

    def add() -> None:
        variable.set("adder")
        future.add_done_callback(lambda _: seen.append(variable.get()))

    contextvars.copy_context().run(add)
    Promise.of(future).resolve(1)
    settle_callbacks()
    assert seen == ["adder"]


def test_a_callback_may_block_without_holding_up_those_who_complete() -> None:
    gate, reached = threading.Event(), threading.Event()
    first, second = pending(), pending()
    first.add_done_callback(lambda _: (reached.set(), gate.wait(PATIENCE)))  # type: ignore[func-returns-value]
    Promise.of(first).resolve(1)
    assert reached.wait(PATIENCE)
    Promise.of(second).resolve(2)
    assert second.get(timeout=PATIENCE) == 2
    gate.set()
    settle_callbacks()


def test_a_callback_may_read_the_future_and_add_callbacks() -> None:
    seen: list[int] = []
    future = pending()
    future.add_done_callback(lambda f: f.add_done_callback(lambda g: seen.append(g.get())))
    Promise.of(future).resolve(8)
    settle_callbacks()
    settle_callbacks()
    assert seen == [8]


def test_an_exception_of_a_callback_goes_to_the_hook_and_stops_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hooked: list[Any] = []
    monkeypatch.setattr(
        threading, "excepthook", lambda args: hooked.append((args.exc_type, args.thread.name))
    )
    seen: list[int] = []
    future = pending()
    future.add_done_callback(lambda _: 1 // 0)
    future.add_done_callback(lambda f: seen.append(f.get()))
    Promise.of(future).resolve(1)
    settle_callbacks()
    assert hooked == [(ZeroDivisionError, "monarch-callbacks")]
    assert seen == [1]


def thread_of_callbacks() -> int:
    """Which thread runs callbacks now."""
    seen: list[int] = []
    completed().add_done_callback(lambda _: seen.append(threading.get_ident()))
    settle_callbacks()
    return seen[0]


def test_who_waits_is_woken_though_there_is_no_thread_for_a_callback() -> None:
    promise: Promise[int] = Promise()
    woken = threading.Event()

    def no_thread() -> None:
        raise RuntimeError("can't start new thread")

    subscribe(promise.future, no_thread)
    subscribe(promise.future, woken.set)
    promise.resolve(1)
    assert woken.is_set()


@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
def test_a_callback_that_would_end_its_thread_stops_no_other(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    hooked: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: hooked.append(args.exc_type))

    def end(_: object) -> None:
        raise error

    before = thread_of_callbacks()
    completed().add_done_callback(end)
    assert thread_of_callbacks() == before
    assert hooked == [error]


@pytest.mark.parametrize("error", [Boom, SystemExit])
def test_a_hook_that_raises_stops_no_callback(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    def hook(args: Any) -> None:
        calls.append(args.exc_type)
        raise error("a hook")

    monkeypatch.setattr(threading, "excepthook", hook)
    before = thread_of_callbacks()
    completed().add_done_callback(lambda _: 1 // 0)
    assert thread_of_callbacks() == before
    assert calls == [ZeroDivisionError]


def test_the_thread_for_callbacks_starts_with_the_first() -> None:
    before = threading.active_count()
    CallbackThread("callbacks")
    assert threading.active_count() == before


# awaiting


def test_a_future_is_awaited_on_many_loops_at_once() -> None:
    future = pending()

    async def read() -> Any:
        return await future

    readers = Readers(future, 6, lambda _: asyncio.run(read()))
    readers.wait_until_they_wait()
    Promise.of(future).resolve("x")
    assert readers.join() == ["x"] * 6


def test_many_tasks_of_one_loop_await_one_future() -> None:
    future = pending()

    async def main() -> list[Any]:
        tasks = [asyncio.ensure_future(future.as_asyncio()) for _ in range(5)]
        await asyncio.sleep(0)
        threading.Thread(target=Promise.of(future).resolve, args=(3,)).start()
        return [await task for task in tasks]

    assert asyncio.run(main()) == [3] * 5


def test_an_error_reaches_those_who_await() -> None:
    async def main(future: Future[Any]) -> None:
        await future

    with pytest.raises(Boom, match="here"):
        asyncio.run(main(failed(Boom("here"))))


def test_a_done_future_is_awaited_without_giving_up_the_loop() -> None:
    async def main() -> list[str]:
        order: list[str] = []
        asyncio.get_running_loop().call_soon(order.append, "loop")
        await completed(1)
        order.append("reader")
        await asyncio.sleep(0)
        return order

    assert asyncio.run(main()) == ["reader", "loop"]


def test_a_reader_that_is_cancelled_leaves_the_others_and_no_callback() -> None:
    source = Recorder()
    future = pending(source)

    async def main() -> Any:
        cancelled, kept = future.as_asyncio(), future.as_asyncio()
        await asyncio.sleep(0)
        assert len(future._callbacks) == 2
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert len(future._callbacks) == 1
        Promise.of(future).resolve(5)
        return await kept

    assert asyncio.run(main()) == 5
    assert source.heard == ["awaited", "awaited", "abandoned"]


def test_an_awaiting_reader_may_set_its_own_limit() -> None:
    future = pending()

    async def main() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.01)

    asyncio.run(main())
    assert future._callbacks == ()


def test_a_loop_that_was_closed_does_no_harm_to_who_completes() -> None:
    future = pending()
    loop = asyncio.new_event_loop()
    task = loop.create_task(future._observe())
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert len(future._callbacks) == 1
    loop.close()
    Promise.of(future).resolve(1)
    assert future.get() == 1
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is meant
    del task
    gc.collect()


def test_an_asyncio_view_needs_a_running_loop() -> None:
    with pytest.raises(RuntimeError):
        completed(1).as_asyncio()


def test_blocking_on_a_running_loop_warns_at_the_line_that_blocks_and_works() -> None:
    source = Releasing()
    future = pending(source)
    other = threading.Thread(target=Promise.of(future).resolve, args=(2,))
    source.release = other.start

    async def blocks() -> Any:
        return future.get(timeout=PATIENCE)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert asyncio.run(blocks()) == 2
    other.join(PATIENCE)
    (warning,) = caught
    assert warning.category is UserWarning
    assert "await" in str(warning.message)
    assert warning.filename == __file__
    assert warning.lineno == blocks.__code__.co_firstlineno + 1


class Releasing(PendingOperation):
    """Starts, when a reader has begun to wait, what ends the wait."""

    release: Callable[[], None]

    def observed(self, future: FutureState, loop: asyncio.AbstractEventLoop | None) -> None:
        self.release()


# what a source hears


@pytest.mark.parametrize("wait", [steps_in_loop, wait_in_loop])
def test_a_wait_that_a_signal_ends_before_it_has_begun_is_not_warned_of(
    wait: Callable[[FutureState], object],
) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        wait(pending(Recorder()))
        gc.collect()
    assert warned == []


def test_a_source_hears_of_waits_begun_and_given_up_but_not_of_reads() -> None:
    source = Recorder()
    future = pending(source)
    assert not future.done()
    assert source.heard == []
    with pytest.raises(TimeoutError):
        future.get(timeout=0)
    assert source.heard == ["blocked", "abandoned"]
    Promise.of(future).resolve(1)
    future.get()
    assert source.heard == ["blocked", "abandoned"]


def test_a_wait_that_could_never_end_is_refused_with_the_reason() -> None:
    future = pending(Recorder(deadlock="it waits for itself"))
    with pytest.raises(DeadlockError, match="it waits for itself"):
        future.get()
    with pytest.raises(DeadlockError, match="it waits for itself"):
        future.exception()
    assert future._callbacks == ()


# mapping


def test_a_mapped_future_converts_once_when_it_is_read() -> None:
    converted: list[int] = []
    future = pending()
    mapped = map_future(future, lambda value: (converted.append(value), value + 1)[1])  # type: ignore[func-returns-value]
    assert not mapped.done()
    Promise.of(future).resolve(1)
    assert mapped.done()
    assert converted == []
    assert [mapped.get(), mapped.get()] == [2, 2]
    assert converted == [1]
    assert future.get() == 1


def test_a_mapped_future_passes_on_errors_of_the_result_and_of_the_conversion() -> None:
    error = Boom("result")
    assert map_future(failed(error), lambda value: value).exception() is error
    assert isinstance(
        map_future(completed(0), lambda value: 1 // value).exception(), ZeroDivisionError
    )


def test_a_mapped_future_names_what_it_waits_for() -> None:
    mapped = map_future(pending(Described("a controller")), str)
    with pytest.raises(TimeoutError, match="a controller"):
        mapped.get(timeout=0)


def test_a_mapped_future_of_an_async_function_converts_its_result() -> None:
    @returns_future
    async def three() -> int:
        return 3

    future = three()
    mapped = map_future(future, lambda value: value + 1)
    assert mapped.get(timeout=PATIENCE) == 4
    assert future.get(timeout=PATIENCE) == 3


def test_the_source_of_a_mapped_future_hears_of_the_original() -> None:
    heard: list[tuple[str, FutureState]] = []

    class Noting(PendingOperation):
        def observed(self, future: FutureState, loop: asyncio.AbstractEventLoop | None) -> None:
            heard.append(("observed", future))

        def abandoned(self, future: FutureState) -> None:
            heard.append(("abandoned", future))

    future = pending(Noting())
    mapped = map_future(map_future(future, str), str)
    with pytest.raises(TimeoutError):
        mapped.get(timeout=0)
    assert heard == [("observed", future), ("abandoned", future)]


def test_a_mapped_future_is_refused_where_the_original_would_be() -> None:
    mapped = map_future(pending(Recorder(deadlock="it waits for itself")), str)
    with pytest.raises(DeadlockError, match="it waits for itself"):
        mapped.get()


# reading the connection oneself


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def test_a_thread_that_waits_for_an_answer_reads_it_itself(wire: Wire) -> None:
    wire.answer(0)
    assert wire.futures[0].get(timeout=PATIENCE) == b"answer"
    assert wire.arrived == [(0, threading.get_ident())]


def test_a_thread_that_waits_for_a_mapped_answer_reads_it_itself(wire: Wire) -> None:
    wire.answer(0)
    assert map_future(wire.futures[0], len).get(timeout=PATIENCE) == len(b"answer")
    assert wire.arrived == [(0, threading.get_ident())]


def test_a_thread_that_reads_hands_other_answers_to_their_futures(wire: Wire) -> None:
    wire.answer(2, 1, 0)
    assert wire.futures[0].get(timeout=PATIENCE) == b"answer"
    assert [future.done() for future in wire.futures] == [True, True, True, False]


def test_a_thread_that_reads_is_woken_when_the_answer_comes_another_way(wire: Wire) -> None:
    other = threading.Thread(target=Promise.of(wire.futures[0]).resolve, args=(5,))
    other.start()
    assert wire.futures[0].get(timeout=PATIENCE) == 5
    other.join(PATIENCE)
    assert wire.arrived == []


def test_a_thread_that_reads_gives_up_in_time_and_gives_the_connection_back(wire: Wire) -> None:
    with pytest.raises(TimeoutError, match=r"waited 0\.01s"):
        wire.futures[0].get(timeout=0.01)
    assert wire.futures[0]._callbacks == ()
    with borrowed(wire.connection) as mine:
        assert mine


def test_a_thread_that_reads_hears_of_the_end_of_the_connection(wire: Wire) -> None:
    wire.peer.close()
    with pytest.raises(ConnectionError, match="closed the connection"):
        wire.futures[0].get(timeout=PATIENCE)


def test_ctrl_c_ends_a_read_of_the_main_thread_and_loses_nothing(wire: Wire) -> None:
    future = wire.futures[0]

    def interrupt() -> None:
        while not future._callbacks:  # the main thread has the connection
            gate.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    gate = threading.Event()
    other = threading.Thread(target=interrupt)
    other.start()
    with pytest.raises(KeyboardInterrupt):
        future.get(timeout=PATIENCE)
    other.join(PATIENCE)
    assert future._callbacks == ()
    assert not wire.connection.closed
    wire.answer(0)
    assert future.get(timeout=PATIENCE) == b"answer"


def test_a_thread_that_reads_may_wait_for_months(wire: Wire) -> None:
    wire.answer(0)
    assert wire.futures[0].get(timeout=60 * 60 * 24 * 60) == b"answer"


# async functions


def test_the_body_starts_at_the_first_read_and_runs_once() -> None:
    runs: list[int] = []

    @returns_future
    async def work(x: int, *, y: int) -> int:
        runs.append(threading.get_ident())
        return x + y

    future = work(1, y=2)
    assert isinstance(future, Future)
    assert not future.done()
    assert not runs
    assert [future.get(timeout=PATIENCE) for _ in range(3)] == [3, 3, 3]
    assert len(runs) == 1
    assert runs[0] != threading.get_ident()


def test_asking_whether_it_is_done_or_adding_a_callback_does_not_start_the_body() -> None:
    runs: list[None] = []

    @returns_future
    async def work() -> None:
        runs.append(None)

    future = work()
    future.add_done_callback(lambda _: None)
    assert not future.done()
    repr(future)
    assert not runs
    assert future.exception(timeout=PATIENCE) is None
    assert len(runs) == 1


def test_the_body_runs_on_the_loop_of_the_first_reader_that_awaits() -> None:
    @returns_future
    async def where() -> tuple[int, Any]:
        return threading.get_ident(), asyncio.get_running_loop()

    async def main() -> None:
        assert await where() == (threading.get_ident(), asyncio.get_running_loop())

    asyncio.run(main())


def test_many_first_readers_start_the_body_once() -> None:
    runs: list[None] = []

    @returns_future
    async def work() -> int:
        runs.append(None)
        await asyncio.sleep(0)
        return 4

    for _ in range(10):
        future = work()
        runs.clear()

        async def read(future: Future[int] = future) -> int:
            return await future

        readers = Readers(future, 6)
        others = Readers(future, 2, lambda _, read=read: asyncio.run(read()))  # type: ignore[misc]
        outcomes = readers.join() + others.join()
        assert outcomes == [4] * 8
        assert len(runs) == 1


def test_a_get_that_times_out_does_not_cancel_the_body() -> None:
    started, gate = threading.Event(), threading.Event()

    @returns_future
    async def work() -> str:
        started.set()
        await asyncio.to_thread(gate.wait, PATIENCE)
        return "done"

    future = work()
    with pytest.raises(TimeoutError, match=r"work\(\)"):
        future.get(timeout=0.02)
    assert started.wait(PATIENCE)
    assert not future.done()
    gate.set()
    assert future.get(timeout=PATIENCE) == "done"


def test_an_await_that_times_out_does_not_cancel_the_body() -> None:
    @returns_future
    async def work(gate: asyncio.Event) -> str:
        await gate.wait()
        return "done"

    async def main() -> str:
        gate = asyncio.Event()
        future = work(gate)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(future, 0.01)
        gate.set()
        return await future

    assert asyncio.run(main()) == "done"


def test_an_error_of_the_body_reaches_every_reader() -> None:
    @returns_future
    async def work() -> None:
        raise Boom("body")

    future = work()
    for _ in range(2):
        with pytest.raises(Boom, match="body"):
            future.get(timeout=PATIENCE)


def test_a_body_cancelled_from_inside_tells_its_reader_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hooked: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", hooked.append)

    @returns_future
    async def work() -> None:
        raise asyncio.CancelledError

    before = set(threading.enumerate())
    with pytest.raises(asyncio.CancelledError):
        work().get(timeout=PATIENCE)
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
    assert not hooked


def test_the_body_sees_the_context_variables_of_the_call() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")

    @returns_future
    async def read() -> str:
        return variable.get()

    token = variable.set("caller")
    blocked, awaited = read(), read()
    variable.reset(token)
    assert blocked.get(timeout=PATIENCE) == "caller"

    async def main() -> str:
        return await awaited

    assert asyncio.run(main()) == "caller"


def test_blocking_the_loop_that_runs_the_body_is_refused() -> None:
    @returns_future
    async def forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        future = forever()
        view = future.as_asyncio()
        await asyncio.sleep(0)
        with pytest.raises(DeadlockError, match="await"):
            future.get()
        view.cancel()

    asyncio.run(main())


def test_bodies_may_await_and_get_each_other() -> None:
    @returns_future
    async def inner() -> int:
        return 1

    @returns_future
    async def outer() -> int:
        return await inner() + await asyncio.to_thread(inner().get, PATIENCE)

    assert outer().get(timeout=PATIENCE) == 2


def test_a_body_whose_loop_ends_before_it_has_begun_leaves_no_wait() -> None:
    @returns_future
    async def work() -> int:
        return 1

    future = work()

    async def main() -> None:
        future.as_asyncio()  # and the loop ends at once

    asyncio.run(main())
    try:
        assert future.get(timeout=0.5) == 1
    except asyncio.CancelledError:
        pass


def test_a_body_for_which_no_loop_can_be_made_tells_its_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @returns_future
    async def work() -> int:
        return 1

    def refuse(main: Any, **options: Any) -> Any:
        main.close()
        raise OSError("no descriptors left")

    monkeypatch.setattr(asyncio, "run", refuse)
    with pytest.raises(OSError, match="no descriptors left"):
        work().get(timeout=PATIENCE)


def test_a_body_whose_loop_ends_in_the_middle_leaves_no_wait() -> None:
    @returns_future
    async def work() -> None:
        await asyncio.Event().wait()

    future = work()

    async def main() -> None:
        future.as_asyncio()
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(main())
    with pytest.raises(asyncio.CancelledError):
        future.get(timeout=PATIENCE)


@pytest.mark.parametrize("function", [lambda: None, print, 3])
def test_only_async_functions_can_return_futures(function: Any) -> None:
    with pytest.raises(TypeError, match="async def"):
        returns_future(function)


def test_the_wrapped_function_keeps_its_name_and_its_errors_at_the_call() -> None:
    @returns_future
    async def work(x: int) -> int:
        """Does it."""
        return x

    assert (work.__name__, work.__doc__) == ("work", "Does it.")
    with pytest.raises(TypeError):
        work().get(timeout=PATIENCE)  # type: ignore[call-arg]
