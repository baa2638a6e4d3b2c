"""What asyncio, `concurrent.futures` and other loops make of a future, wherever they take one."""

from __future__ import annotations

import asyncio
import collections.abc
import concurrent.futures as cf
import gc
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from helpers.leaks import nothing_left
from monarch._core.calls.callbacks import callback_thread
from monarch._core.calls.future import Future
from monarch._core.calls.pending import PendingOperation
from monarch._core.calls.promise import Promise, completed
from monarch._core.calls.waiting import waited_for
from monarch._core.net.waiter import put_back, take_waiter


class Watched(PendingOperation):
    """An operation that counts the waits that were given up."""

    name = "watched"

    def __init__(self) -> None:
        self.given_up = 0

    def abandoned(self, future: object) -> None:
        self.given_up += 1


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    put_back(take_waiter())
    callback_thread.jobs()  # which lives as long as the process
    with nothing_left():
        yield
    assert not waited_for


def failed(error: Exception) -> Future[Any]:
    promise: Promise[Any] = Promise("a failure")
    promise.reject(error)
    return promise.future


def soon(promise: Promise[Any], value: object) -> Future[Any]:
    """The future of `promise`, which another thread completes once the loop has gone on."""
    loop = asyncio.get_running_loop()

    def resolve() -> None:
        thread = threading.Thread(target=promise.resolve, args=(value,))
        thread.start()
        thread.join()

    loop.call_later(0.001, resolve)
    return promise.future


async def in_a_group(future: Future[Any]) -> Any:
    groups: Any = asyncio
    async with groups.TaskGroup() as group:
        task = group.create_task(future)
    return task.result()


async def from_a_thread(future: Future[Any]) -> Any:
    loop = asyncio.get_running_loop()
    return await asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(future, loop).result())


async def by_wait(future: Future[Any]) -> Any:
    (task,), rest = await asyncio.wait([future.as_asyncio()])
    assert not rest
    return task.result()


async def by_wait_for_a_task(future: Future[Any]) -> Any:
    waits: Any = asyncio.wait
    if sys.version_info >= (3, 11):  # the words are asyncio's: they name what works
        with pytest.raises(TypeError, match="coroutines is forbidden, use tasks explicitly"):
            await waits([future])
    (task,), _ = await waits([asyncio.create_task(future)])
    return task.result()


async def by_as_completed(future: Future[Any]) -> Any:
    (first,) = asyncio.as_completed([future])
    return await first


async def gathered(future: Future[Any]) -> Any:
    first, again = await asyncio.gather(future, future)
    assert first is again
    return first


async def awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


WAYS: dict[str, Callable[[Future[Any]], Awaitable[Any]]] = {
    "await": awaited,
    "wait for a task": by_wait_for_a_task,
    "create_task": lambda future: asyncio.create_task(future),
    "ensure_future": asyncio.ensure_future,
    "run_coroutine_threadsafe": from_a_thread,
    "wrap_future": lambda future: asyncio.wrap_future(future),  # type: ignore[arg-type]  # by `isinstance`
    "wait_for": lambda future: asyncio.wait_for(future, None),
    "shield": asyncio.shield,
    "gather": gathered,
    "as_completed": by_as_completed,
    "wait": by_wait,
    "as_asyncio": lambda future: future.as_asyncio(),
}
if hasattr(asyncio, "TaskGroup"):  # Python 3.11
    WAYS["TaskGroup"] = in_a_group


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_every_way_to_wait_in_a_loop_gives_the_result(
    way: Callable[[Future[Any]], Awaitable[Any]],
) -> None:
    async def main() -> list[Any]:
        promise: Promise[Any] = Promise("a result")
        first = await way(soon(promise, 7))
        return [first, await way(promise.future), await way(completed(8))]

    assert asyncio.run(main()) == [7, 7, 8]


@pytest.mark.parametrize("way", [way for name, way in WAYS.items() if name != "TaskGroup"])
def test_every_way_to_wait_in_a_loop_raises_the_error(
    way: Callable[[Future[Any]], Awaitable[Any]],
) -> None:
    async def main() -> None:
        with pytest.raises(LookupError, match="not here"):
            await way(failed(LookupError("not here")))

    asyncio.run(main())


def test_asyncio_run_takes_a_future_as_it_takes_a_coroutine() -> None:
    promise: Promise[int] = Promise("a result")
    timer = threading.Timer(0.001, promise.resolve, [5])
    timer.start()
    assert asyncio.run(promise.future) == 5
    assert asyncio.run(promise.future) == 5
    timer.join()
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(promise.future) == 5
    loop.close()
    with pytest.raises(LookupError):
        asyncio.run(failed(LookupError()))


def test_a_future_is_a_coroutine_and_one_of_concurrent_futures() -> None:
    future: Any = completed()
    assert asyncio.iscoroutine(future)
    assert isinstance(future, collections.abc.Coroutine)
    assert isinstance(future, cf.Future)
    assert isinstance(future, Future)
    assert not asyncio.isfuture(future)
    assert type(future) is Future
    assert issubclass(future.__class__, Future)
    assert repr(future.__class__) == repr(Future)
    readers = {name for name in vars(cf.Future) if not name.startswith(("_", "set_"))}
    assert readers <= set(dir(future))


@pytest.mark.parametrize("mode", [cf.ALL_COMPLETED, cf.FIRST_COMPLETED, cf.FIRST_EXCEPTION])
def test_asyncio_wait_takes_as_asyncio_in_all_modes(mode: str) -> None:
    async def main() -> tuple[list[object], int]:
        slow: Promise[Any] = Promise("slow")
        waits = [completed(1).as_asyncio(), failed(LookupError()).as_asyncio()]
        late = slow.future.as_asyncio()
        if mode == cf.ALL_COMPLETED:
            soon(slow, 3)
        done, rest = await asyncio.wait([*waits, late], return_when=mode)
        slow.resolve(3)
        assert await late == 3
        return [task.exception() or task.result() for task in waits if task in done], len(rest)

    results, rest = asyncio.run(main())
    assert (results[0], type(results[1])) == (1, LookupError)
    assert rest == (0 if mode == cf.ALL_COMPLETED else 1)


def test_tasks_of_one_future_wait_each_for_itself_in_several_loops() -> None:
    watched = Watched()
    promise: Promise[Any] = Promise(watched)

    async def main() -> list[Any]:
        tasks = [asyncio.create_task(promise.future) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        assert not promise.future.done()
        started.wait()
        return [await tasks[0], await tasks[2]]

    started = threading.Barrier(3)
    with cf.ThreadPoolExecutor(2) as pool:
        loops = [pool.submit(asyncio.run, main()) for _ in range(2)]
        started.wait()
        assert watched.given_up == 2
        promise.resolve("all of them")
        assert [loop.result() for loop in loops] == [["all of them"] * 2] * 2


def test_a_task_that_is_cancelled_before_it_began_leaves_the_operation_alone() -> None:
    promise: Promise[Any] = Promise("a result")

    async def main() -> Any:
        task = asyncio.create_task(promise.future)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await soon(promise, 4)

    assert asyncio.run(main()) == 4


def test_a_future_driven_by_hand_yields_until_it_is_done_and_can_be_closed() -> None:
    watched = Watched()
    promise: Promise[Any] = Promise(watched)
    future = promise.future

    async def main() -> None:
        outer = asyncio.current_task()
        waiter = future.send(None)
        assert asyncio.isfuture(waiter)
        future.close()
        future.close()  # which waits no more
        assert watched.given_up == 1
        future.send(None)
        with pytest.raises(EOFError):
            future.throw(EOFError())
        assert watched.given_up == 2
        promise.resolve(9)
        with pytest.raises(StopIteration) as caught:
            future.send(None)
        assert caught.value.value == 9
        assert outer is asyncio.current_task()

    asyncio.run(main())


def test_a_future_that_was_made_a_task_is_freed_with_its_last_reference() -> None:
    async def main() -> weakref.ref[Any]:
        promise: Promise[Any] = Promise("a result")
        await asyncio.create_task(soon(promise, 1))
        return weakref.ref(promise.future)

    gc.collect()
    gc.disable()  # nothing may be left for it to find
    try:
        assert asyncio.run(main())() is None
    finally:
        gc.enable()


def test_wrap_future_passes_a_cancellation_on_as_for_any_concurrent_future() -> None:
    class Droppable(PendingOperation):
        def cancel(self, future: Any) -> bool:
            Promise.of(future).reject(cf.CancelledError())
            return True

    async def main() -> bool:
        future: Any = Promise(Droppable()).future
        wrapped = asyncio.wrap_future(future)
        wrapped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wrapped
        await asyncio.sleep(0)  # it is passed on by the loop
        return bool(future.cancelled())

    assert asyncio.run(main())


def test_callbacks_are_taken_back_by_equality_and_counted() -> None:
    promise: Promise[Any] = Promise("a result")
    future = promise.future
    told: list[str] = []

    class Told:
        def note(self, future: Future[Any]) -> None:
            told.append("noted")

    here = Told()
    done = threading.Event()
    future.add_done_callback(here.note)
    future.add_done_callback(here.note)
    future.add_done_callback(lambda _: done.set())
    assert future.remove_done_callback(print) == 0
    assert future.remove_done_callback(here.note) == 2
    assert future.running()
    promise.resolve(1)
    done.wait()
    assert told == []
    assert not future.running()
    assert future.remove_done_callback(here.note) == 0


def test_a_wait_without_a_loop_of_asyncio_says_how_trio_and_anyio_wait() -> None:
    future: Future[Any] = Promise[Any]("the weights").future
    for coroutine in (awaited(future), future):
        with pytest.raises(RuntimeError) as caught:
            coroutine.send(None)
        assert "the weights" in str(caught.value)
        assert "`await trio.to_thread.run_sync(future.get)`" in str(caught.value)
        assert "`await anyio.to_thread.run_sync(future.get)`" in str(caught.value)
    with pytest.raises(RuntimeError, match="anyio"):
        future.as_asyncio()
    with pytest.raises(StopIteration):
        awaited(completed(1)).send(None)  # which needs no loop


def test_anyio_on_asyncio_awaits_a_future_and_takes_the_way_of_its_error() -> None:
    anyio = pytest.importorskip("anyio")

    async def main() -> list[Any]:
        promise: Promise[Any] = Promise("a result")
        return [await soon(promise, 1), await anyio.to_thread.run_sync(promise.future.get)]

    assert anyio.run(main) == [1, 1]


def test_a_task_shows_the_name_of_its_operation() -> None:
    async def main() -> str:
        promise: Promise[Any] = Promise("echo.say()")
        task = asyncio.create_task(soon(promise, 1))
        shown = repr(task)
        await task
        return shown + repr(asyncio.create_task(completed()))

    shown = asyncio.run(main(), debug=True)
    assert "coro=<echo.say()>" in shown
    assert "coro=<Future()>" in shown


def test_trio_awaits_a_future_on_a_thread_and_is_told_so() -> None:
    trio = pytest.importorskip("trio")
    promise: Promise[Any] = Promise("a result")

    async def main() -> Any:
        with pytest.raises(RuntimeError, match=r"trio\.to_thread"):
            await promise.future
        promise.resolve(3)
        return await trio.to_thread.run_sync(promise.future.get)

    assert trio.run(main) == 3
    with pytest.raises(TypeError, match="expecting an async function"):
        trio.run(promise.future)
