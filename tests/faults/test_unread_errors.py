"""Errors that nobody reads: each is warned of once, wherever and whenever its future is
collected.
"""

from __future__ import annotations

import asyncio
import gc
import linecache
import sys
import threading
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Desk, Failing
from helpers.ahead import several_at_a_time
from helpers.scripts import run_script
from helpers.unread import unread_errors
from helpers.waiting import wait_until
from monarch.actor import Actor, ActorError, Future, SupervisionError, endpoint
from monarch.errors import UnreadErrorWarning

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults


def settled(future: Future[Any]) -> Future[Any]:
    """The future, once it is done; asking that is no reading."""
    wait_until(future.done, what="the answer")
    return future


# what is warned of


@pytest.mark.parametrize("adverb", ["call", "call_one", "choose", "stream"])
def test_an_error_that_is_not_read_is_warned_of_once_when_its_future_goes(
    spawn: Spawn, adverb: str
) -> None:
    failing = spawn(1).spawn("fragile", Failing)
    with unread_errors() as unread:
        made = getattr(failing.fail, adverb)("nobody cares")
        futures = [settled(future) for future in (made if adverb == "stream" else [made])]
        assert unread.texts == []
        del made, futures
        (text,) = unread.wait_for(1)
    assert text.startswith("fragile.fail() failed")
    assert "was not read" in text
    assert "in fail" in text
    assert text.endswith("ValueError: nobody cares")


def test_a_future_that_is_dropped_before_its_answer_is_warned_of_when_that_comes(
    spawn: Spawn,
) -> None:
    failing = spawn(1).spawn("f", Failing)
    with unread_errors() as unread:
        failing.fail.call_one()
        unread.wait_for(1)


def test_the_warning_names_the_ranks_that_failed(spawn: Spawn) -> None:
    failing = spawn(4).spawn("f", Failing, (1, 3))
    with unread_errors() as unread:
        failing.fail_by_rank.options(wait_for_all=True).call()
        (text,) = unread.wait_for(1)
    assert "failed on {'gpus': 1/4}, {'gpus': 3/4}," in text
    assert "ValueError: rank 1 fails" in text


def test_equal_errors_are_each_warned_of_under_the_default_filters(spawn: Spawn) -> None:
    failing = spawn(1).spawn("f", Failing)
    with unread_errors() as unread:
        warnings.simplefilter("default")
        for _ in range(3):
            failing.fail.call_one("the same")
        assert len(set(unread.wait_for(3))) == 1


def test_an_error_that_came_through_a_port_is_warned_of(spawn: Spawn) -> None:
    desk = spawn(1).spawn("desk", Desk)
    with unread_errors() as unread:
        desk.ask.call_one("why")
        desk.refuse.call_one("because").get()
        (text,) = unread.wait_for(1)
    assert "desk.ask() failed" in text
    assert "KeyError: 'because'" in text


def test_a_time_out_is_no_reading_of_the_error_that_comes_later(spawn: Spawn) -> None:
    desk = spawn(1).spawn("desk", Desk)
    with unread_errors() as unread:
        future = desk.ask.call_one("why")
        with pytest.raises(TimeoutError):
            future.get(timeout=0.01)
        desk.refuse.call_one("too late").get()
        settled(future)
        assert unread.texts == []
        del future
        unread.wait_for(1)


class Poison(Exception):
    """Harms whoever rebuilds it."""

    def __reduce__(self) -> Any:
        return sys.exit, ("rebuilt",)

    def __str__(self) -> str:
        return "poison text"


class Poisoner(Actor):
    @endpoint
    def poison(self) -> None:
        raise Poison


def test_the_warning_runs_no_code_of_the_exceptions_class(spawn: Spawn) -> None:
    poisoner = spawn(1).spawn("p", Poisoner)
    with unread_errors() as unread:
        poisoner.poison.call_one()
        (text,) = unread.wait_for(1)
    assert text.endswith("Poison: poison text")


# what is not


def get(future: Future[Any]) -> None:
    with pytest.raises(ActorError):
        future.get()


def get_at_once(future: Future[Any]) -> None:
    with pytest.raises(ActorError):
        future.result()


def ask_for_the_exception(future: Future[Any]) -> None:
    assert isinstance(future.exception(), ActorError)


def await_it(future: Future[Any]) -> None:
    async def main() -> None:
        with pytest.raises(ActorError):
            await future

    asyncio.run(main())


def await_its_view(future: Future[Any]) -> None:
    async def main() -> None:
        with pytest.raises(ActorError):
            await future.as_asyncio()

    asyncio.run(main())


def be_called_back(future: Future[Any]) -> None:
    called = threading.Event()
    future.add_done_callback(lambda _: called.set())
    assert called.wait(20)


def be_called_back_later(future: Future[Any]) -> None:
    be_called_back(settled(future))


@pytest.mark.parametrize(
    "read",
    [
        get,
        get_at_once,
        ask_for_the_exception,
        await_it,
        await_its_view,
        be_called_back,
        be_called_back_later,
    ],
)
@pytest.mark.parametrize("adverb", ["call", "call_one", "choose"])
def test_an_error_that_was_read_in_any_way_is_not_warned_of(
    spawn: Spawn, read: Callable[[Future[Any]], None], adverb: str
) -> None:
    failing = spawn(1).spawn("f", Failing)
    with unread_errors() as unread:
        read(getattr(failing.fail, adverb)())
    assert unread.texts == []


def test_one_error_of_a_stream_that_was_read_stands_for_the_others(spawn: Spawn) -> None:
    failing = spawn(3).spawn("f", Failing)
    with unread_errors() as unread:
        for future in failing.fail.stream():
            with pytest.raises(ValueError):
                future.get()
            break
        assert failing.alive.call().get().values() == [True] * 3
        del future
    assert unread.texts == []


def test_results_and_lost_peers_are_not_warned_of(spawn: Spawn, faults: Faults) -> None:
    failing = spawn(2).spawn("f", Failing)
    with unread_errors() as unread:
        failing.alive.call()
        failing.slice(gpus=1).fail.broadcast()
        faults.wait_for(1)
        lost = failing.alive.call()
        settled(lost)
        del lost
        with pytest.raises(SupervisionError):
            failing.alive.call().get()
    assert unread.texts == []


# where and when


def test_a_future_may_be_collected_under_the_lock_of_warnings(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = threading.Lock()
    shown: list[str] = []

    def show(message: Any, *rest: Any) -> None:
        with lock:
            shown.append(str(message))

    failing = spawn(1).spawn("f", Failing)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        ring: list[Any] = [settled(failing.fail.call_one("in a ring"))]
        ring.append(ring)
        with lock:
            del ring
            gc.collect()
        wait_until(lambda: shown, what="the warning")
    assert len(shown) == 1


def test_a_warning_that_is_an_error_is_reported_and_harms_no_other_wait(
    spawn: Spawn, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_value))
    failing = spawn(1).spawn("f", Failing)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        failing.fail.call_one()
        wait_until(lambda: reported, what="the report")
    assert [type(error) for error in reported] == [UnreadErrorWarning]
    be_called_back(failing.alive.call_one())


def test_the_warning_points_at_the_call(spawn: Spawn) -> None:
    failing = spawn(2).spawn("f", Failing)
    calls: list[Callable[[], object]] = [
        lambda: failing.fail.call(),
        lambda: failing.slice(gpus=0).fail.call_one(),
        lambda: failing.fail.choose(),
        lambda: next(failing.fail.stream()),
    ]
    for call in calls:
        with warnings.catch_warnings(record=True) as shown:
            warnings.simplefilter("always")
            call()
            wait_until(lambda: shown, what="the warning")  # called at once
        line = call.__code__.co_firstlineno
        assert [(entry.filename, entry.lineno) for entry in shown[:1]] == [(__file__, line)]
        assert linecache.getline(__file__, line).strip().startswith("lambda: ")


SCRIPT = """
    import os, sys, threading, time, warnings
    from monarch.actor import Actor, endpoint, this_host
    from monarch.errors import UnreadErrorWarning

    class Fragile(Actor):
        @endpoint
        def fail(self, text):
            raise ValueError(text)

    class Careless(Actor):
        def __init__(self, other):
            self.other = other

        @endpoint
        def drop(self, text):
            self.other.fail.call_one(text)
            return self.other.fail.call_one("was seen").exception() is not None

        @endpoint
        def keep(self, text):
            self.kept = self.other.fail.call_one(text)
            return self.other.fail.call_one("was seen").exception() is not None

    class Late:
        def __del__(self):
            self.future = None

    def settled(future):
        while not future.done():
            time.sleep(0.01)
        return future

    if __name__ == "__main__":
        procs = this_host().spawn_procs(per_host={"n": 1})
        fragile = procs.spawn("fragile", Fragile)
        careless = this_host().spawn_procs(per_host={"n": 1}).spawn("careless", Careless, fragile)
"""


def script(lines: str) -> str:
    return SCRIPT + "".join(f"        {line}\n" for line in lines.strip().splitlines())


@several_at_a_time
@pytest.mark.parametrize(
    "lines",
    [
        "kept = settled(fragile.fail.call_one('the end'))",
        "sys.kept = settled(fragile.fail.call_one('the end'))",
        "late = Late()\nlate.future = settled(fragile.fail.call_one('the end'))\nlate.me = late",
        "fragile.fail.call('the end')\nsettled(fragile.fail.call_one('was seen')).exception()",
        "careless.drop.call_one('the end').get()",
        "careless.keep.call_one('the end').get()",
        (
            "kept = settled(fragile.fail.call_one('the end'))\nif os.fork() == 0:"
            " sys.exit()\nos.wait()"
        ),
    ],
    ids=[
        "referenced",
        "in sys",
        "collected late",
        "dropped",
        "dropped in a proc",
        "referenced in a proc",
        "forked",
    ],
)
@pytest.mark.parametrize("action", ["default", "error"])
def test_what_is_unread_when_the_program_ends_is_told_once(lines: str, action: str) -> None:
    result = run_script(script(f"warnings.simplefilter({action!r}, UnreadErrorWarning)\n{lines}"))
    assert result.exit_code == 0, result
    assert result.stderr.count("ValueError: the end") == 1, result
    assert "UnreadErrorWarning: fragile.fail() failed" in result.stderr, result
    assert "was seen" not in result.stderr, result


def test_the_end_of_a_program_waits_for_a_warning_that_is_being_shown() -> None:
    lines = """
shown = threading.Event()
warnings.showwarning = lambda *args, **kwargs: (shown.set(), time.sleep(1), print("told", flush=True))
fragile.fail.call('the end')
settled(fragile.fail.call_one('was seen')).exception()
shown.wait()
"""
    result = run_script(script(lines))
    assert (result.exit_code, result.stdout) == (0, "told\n"), result


def test_a_program_can_turn_the_warnings_off() -> None:
    lines = (
        "warnings.simplefilter('ignore', UnreadErrorWarning)\nkept ="
        " settled(fragile.fail.call_one('the end'))"
    )
    result = run_script(script(lines))
    assert (result.exit_code, result.stderr) == (0, ""), result


def test_an_unread_error_is_told_although_an_unhandled_fault_ends_the_program() -> None:
    lines = (
        "kept = settled(fragile.fail.call_one('the end'))\nfragile.fail.broadcast('a"
        " fault')\ntime.sleep(30)"
    )
    result = run_script(script(lines))
    assert result.exit_code == 1, result
    assert result.stderr.count("ValueError: the end") == 1, result
    assert "ValueError: a fault" in result.stderr, result
