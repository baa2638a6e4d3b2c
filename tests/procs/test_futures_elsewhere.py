"""Futures and receivers in the hands of others: `concurrent.futures`, ``async for``; receivers tied
to calls; time-outs.
"""

from __future__ import annotations

import asyncio
import concurrent.futures as cf
import gc
import os
import pickle
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, cast

import pytest

from helpers.actors import Echo, Failing, Gate, open_channel
from helpers.waiting import wait_until
from monarch.actor import (
    Actor,
    ActorError,
    Channel,
    DeadlockError,
    Point,
    Port,
    SupervisionError,
    endpoint,
    returns_future,
)
from monarch.errors import CallTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from conftest import Spawn
    from helpers.faults import Faults

PATIENCE = 20.0


def theirs(futures: Iterable[Any]) -> Any:
    """`concurrent.futures` is typed for its own futures only."""
    return cast("Any", list(futures))


@pytest.fixture
def doors(spawn: Spawn, tmp_path: Path) -> Any:
    """Three futures, each done once its file is there."""
    gates = spawn(3).spawn("gates", Gate)
    paths = [tmp_path / f"open{rank}" for rank in range(3)]
    return paths, [
        gates.slice(gpus=rank).wait_for_file.call_one(str(path)) for rank, path in enumerate(paths)
    ]


def test_wait_of_concurrent_futures_tells_done_from_not_done(doors: Any) -> None:
    paths, futures = doors
    nothing = cf.wait(theirs(futures), timeout=0.01)
    assert (nothing.done, nothing.not_done) == (set(), set(futures))
    paths[1].touch()
    first = cf.wait(theirs(futures), PATIENCE, return_when=cf.FIRST_COMPLETED)
    assert (first.done, first.not_done) == ({futures[1]}, {futures[0], futures[2]})
    paths[0].touch()
    paths[2].touch()
    every = cf.wait(theirs(futures), PATIENCE)
    assert (every.done, every.not_done) == (set(futures), set())
    assert [future.get() for future in futures] == ["through"] * 3


def test_as_completed_gives_futures_as_they_complete_together_with_those_of_threads(
    doors: Any,
) -> None:
    paths, futures = doors
    with cf.ThreadPoolExecutor() as pool:
        waiting = cf.as_completed([*theirs(futures), pool.submit(lambda: "of a thread")], PATIENCE)
        assert next(waiting).result() == "of a thread"
        for rank in (2, 0, 1):
            paths[rank].touch()
            assert next(waiting) is futures[rank]
        assert list(waiting) == []


def test_wait_ends_with_the_first_exception_if_asked_to(spawn: Spawn, tmp_path: Path) -> None:
    pending = spawn(1).spawn("gate", Gate).wait_for_file.call_one(str(tmp_path / "open"))
    failing = spawn(1).spawn("f", Failing)
    futures: list[Any] = [pending, failing.alive.call_one(), failing.fail.call_one()]
    outcome: Any = cf.wait(theirs(futures), PATIENCE, return_when=cf.FIRST_EXCEPTION)
    assert futures[2] in outcome.done
    assert outcome.not_done == {pending}
    assert isinstance(futures[2].exception(), ActorError)
    (tmp_path / "open").touch()
    pending.get(timeout=PATIENCE)


def test_many_threads_wait_for_futures_that_complete_meanwhile(spawn: Spawn) -> None:
    echo = spawn(2).spawn("echo", Echo)
    for _ in range(20):
        futures = [echo.say.choose(i) for i in range(40)]
        outcomes: list[Any] = []
        threads = [
            # joined below
            threading.Thread(target=lambda: outcomes.append(cf.wait(theirs(futures), PATIENCE)))  # noqa: B023
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        assert {future.result() for future in cf.as_completed(theirs(futures), PATIENCE)} == set(
            range(40)
        )
        for thread in threads:
            thread.join(PATIENCE)
        assert [(len(done), len(rest)) for done, rest in outcomes] == [(40, 0)] * 4


def test_wait_starts_what_starts_with_its_first_reader_and_takes_values_of_ports() -> None:
    @returns_future
    async def body() -> int:
        return 5

    port, receiver = open_channel()
    port.send(6)
    futures = [body(), receiver.recv()]
    assert cf.wait(theirs(futures), PATIENCE).not_done == set()
    assert [future.get() for future in futures] == [5, 6]


@pytest.mark.processes("looks for waits outside of the engine once in a while")
def test_a_wait_that_could_never_end_is_refused(spawn: Spawn) -> None:
    class Narcissus(Actor):
        @endpoint
        def look(self, me: Any) -> None:
            cf.wait(theirs([me.look.call_one(None)]))

    actor = spawn(1).spawn("n", Narcissus)
    with pytest.raises(DeadlockError):
        actor.look.call_one(actor).get(timeout=PATIENCE)


def test_a_future_that_was_waited_for_is_freed_with_its_last_reference(spawn: Spawn) -> None:
    echo = spawn(1).spawn("echo", Echo)
    gc.collect()
    gc.disable()  # nothing may be left for it to find
    try:
        future = echo.say.call_one(1)
        cf.wait(theirs([future]), PATIENCE)
        freed = weakref.ref(future)
        del future
        wait_until(lambda: freed() is None, what="the end of the future")
    finally:
        gc.enable()


# async for


def test_async_for_over_a_stream_gives_done_futures_that_know_their_rank(spawn: Spawn) -> None:
    ranks = spawn(3).spawn("echo", Echo)

    async def main() -> list[Any]:
        seen = []
        async for future in ranks.say.stream("x"):
            assert future.done()
            assert future.rank is not None
            seen.append((future.rank.rank, future.get()))
        return seen

    assert sorted(asyncio.run(main())) == [(0, "x"), (1, "x"), (2, "x")]


def test_async_for_over_a_stream_goes_on_after_a_rank_that_failed(spawn: Spawn) -> None:
    failing = spawn(3).spawn("f", Failing, fail_ranks=(1,))

    async def main() -> dict[int, bool]:
        return {
            future.rank.rank: isinstance(future.exception(), ActorError)
            async for future in failing.fail_by_rank.stream()
            if future.rank is not None
        }

    assert asyncio.run(main()) == {0: False, 1: True, 2: False}


def test_async_for_over_a_receiver_gives_values_in_order_and_ends_with_the_port() -> None:
    port, receiver = open_channel()

    async def main() -> list[int]:
        seen: list[int] = []
        async for value in receiver:
            seen.append(value)
            if len(seen) == 3:
                receiver._queue.close("the test closes it")
        return seen

    for i in range(3):
        port.send(i)
    assert asyncio.run(main()) == [0, 1, 2]


def test_async_for_over_a_receiver_for_one_value_gives_that() -> None:
    port: Port[int]
    port, receiver = Channel[int].open(once=True)
    port.send(7)

    async def main() -> list[int]:
        return [value async for value in receiver]

    assert asyncio.run(main()) == [7]


def test_an_error_that_was_sent_is_raised_by_async_for_and_the_next_loop_goes_on() -> None:
    port, receiver = open_channel()
    port.exception(EOFError("sent, not the end"))
    port.send(1)

    async def main() -> Any:
        with pytest.raises(EOFError, match="sent"):
            async for _ in receiver:
                pass
        return await receiver.__anext__()

    assert asyncio.run(main()) == 1


def test_a_cancelled_async_for_loses_no_value() -> None:
    port, receiver = open_channel()

    async def main() -> Any:
        waiting = asyncio.ensure_future(receiver.__anext__())
        await asyncio.sleep(0)
        # it is given to the waiting one at once, which is cancelled before it can look
        port.send("first")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        port.send("second")
        return [await receiver.recv(), await receiver.recv()]

    assert asyncio.run(main()) == ["first", "second"]


# a receiver that is tied to a call


class Crawler(Actor):
    @endpoint
    def crawl(self, port: Port[str], door: str, fail: bool) -> str:
        port.send("a page")
        while not os.path.exists(door):
            time.sleep(0.005)
        if fail:
            raise LookupError("no more pages")
        return "done"


def test_a_receiver_that_is_tied_to_a_call_raises_when_that_has_failed(
    spawn: Spawn, tmp_path: Path
) -> None:
    port, receiver = Channel[str].open()
    door = tmp_path / "door"
    pages = receiver.tied_to(
        spawn(1).spawn("crawler", Crawler).crawl.call_one(port, str(door), True)
    )
    assert pages.recv().get(timeout=PATIENCE) == "a page"
    waits = pages.recv()
    with pytest.raises(TimeoutError):
        waits.get(timeout=0.05)
    door.touch()
    for future in (waits, pages.recv()):
        with pytest.raises(LookupError, match="no more pages"):
            future.get(timeout=PATIENCE)

    async def main() -> None:
        with pytest.raises(LookupError, match="no more pages"):
            async for _ in pages:
                pass

    asyncio.run(main())
    port.send("another")
    assert pages.recv().get(timeout=PATIENCE) == "another"  # what comes is read all the same


def test_a_receiver_that_is_tied_to_a_call_hears_of_the_death_of_its_rank(
    spawn: Spawn, faults: Faults, tmp_path: Path
) -> None:
    port, receiver = Channel[str].open()
    crawler = spawn(1).spawn("crawler", Crawler)
    pages = receiver.tied_to(crawler.crawl.call_one(port, str(tmp_path / "door"), False))
    assert pages.recv().get(timeout=PATIENCE) == "a page"
    waits = pages.recv()
    stopping = crawler.stop()
    with pytest.raises(SupervisionError):
        waits.get(timeout=PATIENCE)
    stopping.get(timeout=PATIENCE)


def test_a_call_that_ends_well_leaves_the_receiver_as_it_was(spawn: Spawn, tmp_path: Path) -> None:
    port, receiver = Channel[str].open()
    (tmp_path / "door").touch()
    call = spawn(1).spawn("crawler", Crawler).crawl.call_one(port, str(tmp_path / "door"), False)
    pages = receiver.tied_to(call)
    assert call.get(timeout=PATIENCE) == "done"
    assert pages.recv().get(timeout=PATIENCE) == "a page"
    with pytest.raises(TimeoutError):
        pages.recv().get(timeout=0.05)


def test_a_receiver_is_tied_to_futures_only() -> None:
    _, receiver = open_channel()
    with pytest.raises(TypeError, match="future"):
        receiver.tied_to("a call")  # type: ignore[arg-type]


# the answers of a call whose time is up


def test_the_answers_of_a_call_that_timed_out_can_be_read(spawn: Spawn, tmp_path: Path) -> None:
    door = tmp_path / "door"
    gates = spawn(3).spawn("gates", Gate)
    held = gates.slice(gpus=1).wait_for_file.call_one(str(door))
    call = gates.say.call(["x"])
    for rank in (0, 2):
        # later, so the answers before it have been sent
        gates.slice(gpus=rank).say.call_one(0).get(timeout=PATIENCE)
    with pytest.raises(CallTimeoutError, match="no answer yet from {'gpus': 1/3}") as caught:
        call.get(timeout=0.2)
    assert isinstance(caught.value, TimeoutError)
    assert {point.rank: value for point, value in caught.value.values.items()} == {
        0: ["x"],
        2: ["x"],
    }
    assert dict(pickle.loads(pickle.dumps(caught.value)).values) == dict(caught.value.values)
    with pytest.raises(KeyError):
        caught.value.values[Point(1, gates.extent)]
    door.touch()
    held.get(timeout=PATIENCE)
    assert call.get(timeout=PATIENCE).values() == [["x"]] * 3
