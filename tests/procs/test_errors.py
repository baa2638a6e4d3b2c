"""Errors of calls as a program sees them: which ``except`` catches them, what they tell, what is
told of other ranks.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from email.message import Message
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

import pytest

from helpers.actors import Echo, Failing, OddError
from helpers.scripts import run_script
from helpers.waiting import wait_until
from monarch.actor import (
    Actor,
    ActorError,
    Future,
    Point,
    SupervisionError,
    context,
    current_rank,
    endpoint,
    this_host,
)

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.both


class Raising(Actor):
    """Raises what it is given."""

    @endpoint
    def throw(self, error: BaseException) -> None:
        raise error

    @endpoint
    def throw_new(self, kind: type[Exception], args: tuple[Any, ...]) -> None:
        raise kind(*args)

    @endpoint
    def open_file(self, path: str) -> None:
        with open(path):
            pass

    @endpoint
    def end(self, how: str) -> None:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("it ended")

    @endpoint
    def say(self, value: Any) -> Any:
        return value

    @endpoint
    def fetch(self) -> None:
        # as urlopen does
        raise HTTPError("http://x/y", 404, "Not Found", Message(), open("/dev/null", "rb"))  # noqa: SIM115

    @endpoint
    def lock(self) -> None:
        error = LookupError("locked", threading.Lock())
        error.held = threading.Lock()  # type: ignore[attr-defined]
        error.place = "here"  # type: ignore[attr-defined]
        raise error


class AsyncRaising(Actor):
    @endpoint
    async def throw(self, error: BaseException) -> None:
        await asyncio.sleep(0)
        raise error


class Middle(Actor):
    """Calls another actor and lets its errors pass."""

    def __init__(self, other: Any) -> None:
        self.other = other

    @endpoint
    def throw_new(self, kind: type[Exception], args: tuple[Any, ...]) -> None:
        self.other.throw_new.call_one(kind, args).get()

    @endpoint
    def end(self, how: str) -> None:
        self.other.end.call_one(how).get()


class Uneven(Actor):
    """Some ranks fail, each in its own way and in its own time."""

    @endpoint
    def work(self, how: list[str], door: str = "") -> int:
        rank = current_rank().rank
        if how[rank] == "fail late":
            while not os.path.exists(door):
                time.sleep(0.005)
        if how[rank].startswith("fail"):
            raise ValueError(f"rank {rank} fails")
        if how[rank] == "die":
            os._exit(3)
        if how[rank] == "stop":
            context().actor_instance.stop("enough")
        if how[rank] == "peer gone":
            raise SupervisionError("its peer is gone")
        return rank


# of the type that was raised


@pytest.mark.parametrize("kind", [Raising, AsyncRaising])
@pytest.mark.parametrize("adverb", ["call", "call_one", "choose"])
def test_except_around_a_call_catches_what_the_endpoint_raised(
    spawn: Spawn, kind: Any, adverb: str
) -> None:
    raising = spawn(1).spawn("raising", kind)
    with pytest.raises(ValueError, match="what went wrong") as caught:
        getattr(raising.throw, adverb)(ValueError("what went wrong")).get()
    assert isinstance(caught.value, ActorError)
    assert type(caught.value.exception) is ValueError
    assert caught.value.args == ("what went wrong",)


def test_an_error_of_urlopen_is_caught_as_what_it_is_although_it_holds_a_connection(
    spawn: Spawn,
) -> None:
    with pytest.raises(HTTPError) as caught:
        spawn(1).spawn("r", Raising).fetch.call_one().get()
    assert isinstance(caught.value, ActorError)
    assert (caught.value.code, caught.value.reason, caught.value.url) == (
        404,
        "Not Found",
        "http://x/y",
    )
    assert caught.value.fp is None
    assert isinstance(caught.value.exception, HTTPError)
    assert "HTTP Error 404: Not Found" in str(caught.value)


def test_what_an_error_holds_and_cannot_be_sent_is_none_over_here(spawn: Spawn) -> None:
    with pytest.raises(LookupError) as caught:
        spawn(1).spawn("r", Raising).lock.call_one().get()
    assert caught.value.args == ("locked", None)
    assert vars(caught.value)["held"] is None
    assert vars(caught.value)["place"] == "here"


def test_except_around_an_await_and_in_a_stream_catches_it_too(spawn: Spawn) -> None:
    raising = spawn(1).spawn("raising", Raising)

    async def main() -> None:
        with pytest.raises(KeyError):
            await raising.throw.call_one(KeyError("k"))
        for future in raising.throw.stream(KeyError("k")):
            with pytest.raises(KeyError):
                await future.as_asyncio()

    asyncio.run(main())


def test_the_attributes_of_the_original_are_those_of_the_callers_error(spawn: Spawn) -> None:
    raising = spawn(1).spawn("raising", Raising)
    with pytest.raises(FileNotFoundError) as missing:
        raising.open_file.call_one("/not/there").get()
    assert (missing.value.errno, missing.value.filename) == (2, "/not/there")
    with pytest.raises(OddError) as odd:
        raising.throw_new.call_one(OddError, (7, "seven")).get()
    assert (odd.value.code, odd.value.detail) == (7, "seven")


@pytest.mark.parametrize(
    ("kind", "args"),
    [(ValueError, ("deep",)), (OddError, (7, "seven")), (FileNotFoundError, (2, "No", "/x"))],
)
def test_the_type_survives_actors_that_let_the_error_pass(
    spawn: Spawn, kind: type[Exception], args: tuple[Any, ...]
) -> None:
    raising = spawn(1).spawn("raising", Raising)
    inner = spawn(1).spawn("inner", Middle, raising)
    outer = spawn(1).spawn("outer", Middle, inner)
    with pytest.raises(kind) as caught:
        outer.throw_new.call_one(kind, args).get()
    assert isinstance(caught.value, ActorError)
    original = kind(*args)
    assert caught.value.args == original.args
    for name in ("code", "detail", "errno", "filename"):
        assert getattr(caught.value, name, None) == getattr(original, name, None)
    text = str(caught.value)
    for part in (
        "raise kind(*args)",
        "Actor call inner.",
        "Actor call outer.",
        "Actor call raising.",
    ):
        assert text.count(part) == 1, text


@pytest.mark.parametrize("how", ["killed", "raised"])
def test_a_supervision_error_that_an_actor_lets_pass_tells_the_caller_what_failed(
    spawn: Spawn, faults: Faults, how: str
) -> None:
    raising = spawn(1).spawn("raising", Raising)
    middle = spawn(1).spawn("middle", Middle, raising)
    if how == "raised":
        raising.end.broadcast(how)
        faults.wait_for(1)
    with pytest.raises(SupervisionError) as caught:
        middle.end.call_one(how).get()
    assert isinstance(caught.value, ActorError)
    assert caught.value.failure.cause == ("killed" if how == "killed" else "exception")
    assert caught.value.endpoint == "raising.end()"
    faults.wait_for(1)


def test_a_time_out_over_there_is_not_taken_for_the_callers_own(spawn: Spawn) -> None:
    raising = spawn(1).spawn("raising", Raising)
    future = raising.throw.call_one(TimeoutError("over there"))
    with pytest.raises(ActorError) as caught:
        future.get()
    assert not isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value.exception, TimeoutError)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="groups are of 3.11")
def test_except_star_takes_a_remote_group_apart(spawn: Spawn) -> None:
    namespace: dict[str, Any] = {"raising": spawn(1).spawn("raising", Raising), "seen": []}
    source = """
try:
    raising.throw.call_one(ExceptionGroup("several", [ValueError("v"), KeyError("k")])).get()
except* ValueError as part:
    seen.append(part.exceptions)
except* KeyError as part:
    seen.append(part.exceptions)
"""
    exec(source, namespace)  # no syntax of 3.10
    assert [[type(error) for error in part] for part in namespace["seen"]] == [
        [ValueError],
        [KeyError],
    ]


# tracebacks


def test_a_traceback_shows_the_remote_frames_once_and_one_frame_of_the_engine(spawn: Spawn) -> None:
    inner = spawn(1).spawn("raising", Raising)
    middle = spawn(1).spawn("middle", Middle, inner)
    with pytest.raises(ValueError) as caught:
        middle.throw_new.call_one(ValueError, ("what went wrong",)).get()
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("raise kind(*args)") == 1
    assert text.count("self.other.throw_new") == 1
    assert text.count("ValueError: what went wrong") == 1
    assert text.count("/monarch/_core/") == 1


def test_the_same_error_can_be_raised_again_and_again_without_its_traceback_growing(
    spawn: Spawn,
) -> None:
    future = spawn(1).spawn("raising", Raising).throw.call_one(ValueError("x"))
    lengths = set()
    for _ in range(3):
        with pytest.raises(ValueError) as caught:
            future.get()
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1


# several ranks


def test_the_error_of_a_call_tells_of_every_rank_that_has_failed_by_now(
    spawn: Spawn, tmp_path: Path
) -> None:
    uneven = spawn(4).spawn("uneven", Uneven)
    door = tmp_path / "open"
    future = uneven.work.call(["fine", "fail", "fail late", "fail late"], str(door))
    with pytest.raises(ValueError, match="rank 1 fails") as caught:
        future.get()
    error: Any = caught.value
    assert [point.rank for point in error.by_rank] == [1]
    assert "ranks have failed" not in str(error)
    door.touch()
    wait_until(lambda: len(error.by_rank) == 3, what="the failures of the other ranks")
    assert [point["gpus"] for point in error.by_rank] == [1, 2, 3]
    assert all(isinstance(failed, ValueError) for failed in error.by_rank.values())
    assert error.by_rank[error.rank] is error
    assert "ranks have failed" not in str(error)  # it says what it said when it was raised
    assert future.exception() is caught.value
    with pytest.raises(KeyError):
        error.by_rank[Point(0, error.rank.extent)]


def test_a_call_can_wait_for_all_ranks_although_one_has_failed(
    spawn: Spawn, tmp_path: Path
) -> None:
    uneven = spawn(3).spawn("uneven", Uneven)
    door = tmp_path / "open"
    future = uneven.work.options(wait_for_all=True).call(["fail", "fail late", "fine"], str(door))
    wait_until(
        lambda: "no answer yet from {'gpus': 1/3}" in repr(future), what="the answers of two ranks"
    )
    assert not future.done()
    door.touch()
    with pytest.raises(ValueError, match="rank 0 fails") as caught:
        future.get()
    error: Any = caught.value
    assert [str(failed.args[0]) for failed in error.by_rank.values()] == [
        "rank 0 fails",
        "rank 1 fails",
    ]
    assert "\n2 of 3 ranks have failed: {'gpus': 0/3}, {'gpus': 1/3}." in str(error)
    assert uneven.work.options(wait_for_all=True).call(["fine"] * 3).get().values() == [0, 1, 2]


def test_the_root_cause_is_raised_rather_than_its_consequences(
    spawn: Spawn, faults: Faults
) -> None:
    uneven = spawn(4).spawn("uneven", Uneven)
    with pytest.raises(SupervisionError) as died:
        uneven.work.options(wait_for_all=True).call(["peer gone", "fine", "fine", "die"]).get()
    assert died.value.failure.exit_code == 3
    assert [point.rank for point in died.value.by_rank] == [0, 3]
    assert "2 of 4 ranks have failed" in str(died.value)
    faults.wait_for(1)


def test_a_rank_that_was_stopped_is_blamed_last(spawn: Spawn, tmp_path: Path) -> None:
    uneven = spawn(3).spawn("uneven", Uneven)
    uneven.slice(gpus=0).work.call_one(["stop"]).exception()
    wait_until(
        lambda: uneven.slice(gpus=0).work.call_one(["fine"]).exception(),
        what="rank 0 to have ended",
    )
    with pytest.raises(ValueError, match="rank 2 fails") as caught:
        uneven.work.options(wait_for_all=True).call(["fine", "fine", "fail"]).get()
    error: Any = caught.value
    assert [type(failed) is SupervisionError for failed in error.by_rank.values()] == [True, False]


def test_an_error_does_not_accuse_ranks_that_were_stopped_because_of_it(tmp_path: Path) -> None:
    door = str(tmp_path / "never opened")

    def run() -> Future[Any]:
        with this_host().spawn_procs({"gpus": 4}) as procs:
            unread = procs.spawn("unread", Uneven).work.call(
                ["fine", "fail", "fail late", "fail late"], door
            )
            wait_until(unread.done, what="the first failure")
            work = procs.spawn("uneven", Uneven).work
            before: Any = work.call(["fine", "fail", "fail late", "fail late"], door).exception()
        assert "ranks have failed" not in str(before)
        assert [point.rank for point in before.by_rank] == [1]
        return unread

    after = str(run().exception())
    assert "rank 1 fails" in after
    assert "ranks have failed" not in after


def test_an_error_of_several_ranks_can_be_sent_and_tells_the_same(spawn: Spawn) -> None:
    uneven = spawn(3).spawn("uneven", Uneven)
    error: Any = uneven.work.options(wait_for_all=True).call(["fail", "fine", "fail"]).exception()
    for again in (
        pickle.loads(pickle.dumps(error)),
        spawn(1).spawn("e", Echo).say.call_one(error).get(),
    ):
        assert str(again) == str(error)
        assert list(again.by_rank) == list(error.by_rank)
        assert again.by_rank[again.rank] is again


def test_an_error_of_another_adverb_than_call_tells_of_no_other_ranks(spawn: Spawn) -> None:
    failing = spawn(2).spawn("f", Failing)
    errors: list[Any] = [future.exception() for future in failing.fail.stream()]
    errors.append(failing.fail.choose().exception())
    errors.append(failing.slice(gpus=0).fail.call_one().exception())
    assert [dict(error.by_rank) for error in errors] == [{}] * 4
    assert errors[2].rank is not None  # which one was chosen


def test_an_endpoint_with_options_can_be_sent_and_keeps_them(spawn: Spawn) -> None:
    uneven = spawn(2).spawn("uneven", Uneven)
    work: Any = spawn(1).spawn("e", Echo).say.call_one(uneven.work.options(wait_for_all=True)).get()
    error: Any = work.call(["fail", "fail"]).exception()
    assert len(error.by_rank) == 2
    assert work.call(["fine", "fine"]).get().values() == [0, 1]


def test_an_option_that_does_not_exist_is_answered_with_those_that_do(spawn: Spawn) -> None:
    echo = spawn(1).spawn("e", Echo)
    with pytest.raises(TypeError, match="no option 'wait_for_al'; there are: wait_for_all"):
        echo.say.options(wait_for_al=True)
    with pytest.raises(TypeError, match="wait_for_all of e.say.. is a bool, got 3"):
        echo.say.options(wait_for_all=3)


# what goes on although something failed


def test_a_result_that_has_arrived_is_not_lost_when_a_rank_dies(
    spawn: Spawn, faults: Faults
) -> None:
    raising = spawn(2).spawn("raising", Raising)
    everywhere, one = raising.say.call(3), raising.slice(gpus=1).say.call_one(4)
    streamed = list(raising.say.stream(5))
    wait_until(
        lambda: all(future.done() for future in (everywhere, one, *streamed)), what="the answers"
    )
    raising.slice(gpus=1).end.broadcast("killed")
    faults.wait_for(1)
    with pytest.raises(SupervisionError):
        raising.say.call(6).get()
    assert everywhere.get().values() == [3, 3]
    assert one.get() == 4
    assert [future.get() for future in streamed] == [5, 5]


def test_a_message_over_the_limit_fails_at_once_and_the_connection_stays() -> None:
    source = """
        from monarch.actor import Actor, endpoint, this_host
        from monarch.config import configure

        class Big(Actor):
            @endpoint
            def make(self, size):
                return b"x" * size

            @endpoint
            def take(self, value):
                return len(value)

        if __name__ == "__main__":
            configure(codec_max_frame_length=1_000_000)
            big = this_host().spawn_procs(per_host={"n": 1}).spawn("big", Big)
            for attempt in (lambda: big.take.call_one(b"x" * 2_000_000), lambda: big.make.call_one(2_000_000)):
                try:
                    attempt().get()
                except ValueError as error:
                    print(type(error).__name__, "over the limit of 1000000 bytes" in str(error))
                print(big.take.call_one(b"x" * 900_000).get())
        """
    result = run_script(source)
    assert result.stdout.split() == [
        "ValueError",
        "True",
        "900000",
        "ActorError[ValueError]",
        "True",
        "900000",
    ], result


CLUMSY = """
    import sys
    from monarch.actor import Actor, endpoint, this_host

    class Clumsy(Actor):
        @endpoint
        def ready(self): ...

        def __cleanup__(self, exc):
            raise ValueError("clumsy cleanup")

    class AsyncClumsy(Actor):
        @endpoint
        async def ready(self): ...

        async def __cleanup__(self, exc):
            raise ValueError("clumsy cleanup")

    if __name__ == "__main__":
        procs = this_host().spawn_procs(per_host={{"n": 1}})
        clumsy = procs.spawn("clumsy", {kind})
        clumsy.ready.call_one().get()
        {end}
"""


@pytest.mark.parametrize("kind", ["Clumsy", "AsyncClumsy"])
@pytest.mark.parametrize("end", ["clumsy.stop().get()", "procs.stop().get()", "pass"])
def test_a_cleanup_that_raises_is_reported_once_however_the_actor_ended(
    kind: str, end: str
) -> None:
    result = run_script(CLUMSY.format(kind=kind, end=end))
    assert result.exit_code == 0, result
    # the line that raised, and the exception
    assert result.stderr.count("clumsy cleanup") == 2, result
    assert result.stderr.count("__cleanup__ raised") == 1, result
    assert "clumsy" in result.stderr.partition("__cleanup__ raised")[0], result
    assert "/monarch/_core/" not in result.stderr, result
