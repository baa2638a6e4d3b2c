"""Answers whose unpickling does what it should not: blocks, waits for other threads, exits."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo, open_channel
from helpers.scripts import run_script
from monarch.actor import Actor, ActorError, endpoint

if TYPE_CHECKING:
    from conftest import Spawn

PATIENCE = 20.0
entered = threading.Event()
let_go = threading.Event()


class Slow:
    """Unpickles in this process, from the second test on, when it is let go."""

    def __reduce__(self) -> Any:
        return _rebuild_slowly, ()


def _rebuild_slowly() -> str:
    entered.set()
    assert let_go.wait()
    return "rebuilt"


class Exits:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        return _raise, (self.error,)


class ErrorThatExits(Exception):
    def __init__(self, error: BaseException) -> None:
        super().__init__("what was really wrong")
        self.error = error

    def __reduce__(self) -> Any:
        return _raise, (self.error,)


def _raise(error: BaseException) -> None:
    raise error


class Odd(Actor):
    @endpoint
    def slow(self) -> Any:
        return Slow()

    @endpoint
    def exits(self, error: BaseException) -> Any:
        return Exits(error)

    @endpoint
    def fails(self, error: BaseException) -> Any:
        raise ErrorThatExits(error)

    @endpoint
    def send(self, port: Any, error: BaseException) -> None:
        port.send(Exits(error))
        port.exception(ErrorThatExits(error))

    @endpoint
    def say(self, value: Any) -> Any:
        return value


@pytest.fixture
def being_read(spawn: Spawn) -> Any:
    """A future whose answer a thread of its own unpickles, until it is let go."""
    entered.clear()
    let_go.clear()
    actor = spawn(1).spawn("odd", Odd)
    future = actor.slow.call_one()
    reader = threading.Thread(target=future.get)
    reader.start()
    assert entered.wait()
    yield actor, future
    let_go.set()
    reader.join(PATIENCE)
    assert not reader.is_alive()


def test_a_thread_that_unpickles_holds_up_no_reader_of_other_answers(being_read: Any) -> None:
    actor, _ = being_read
    # of the same actor, and decoded while the other waits
    assert actor.say.call_one(1).get(timeout=PATIENCE) == 1
    assert not let_go.is_set()


def test_a_reader_gives_up_in_time_while_another_unpickles_what_it_waits_for(
    being_read: Any,
) -> None:
    _, future = being_read
    for read in (future.get, future.exception):
        with pytest.raises(TimeoutError, match="another thread"):
            read(timeout=0.05)
    let_go.set()
    assert future.get(timeout=PATIENCE) == "rebuilt"


def test_unpickling_may_wait_for_a_thread_that_reads_an_answer(spawn: Spawn) -> None:
    entered.clear()
    let_go.clear()
    actor = spawn(1).spawn("odd", Odd)

    def read_another() -> None:
        assert entered.wait()
        assert actor.say.call_one([2]).get(timeout=PATIENCE) == [2]
        let_go.set()

    other = threading.Thread(target=read_another)
    other.start()
    assert actor.slow.call_one().get(timeout=PATIENCE) == "rebuilt"
    other.join(PATIENCE)
    assert not other.is_alive()


ENDS = [SystemExit(3), KeyboardInterrupt(), GeneratorExit()]


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_an_error_whose_rebuilding_exits_is_an_error_like_any_other(
    spawn: Spawn, error: BaseException
) -> None:
    actor = spawn(1).spawn("odd", Odd)
    with pytest.raises(ActorError, match="what was really wrong") as caught:
        actor.fails.call_one(error).get(timeout=PATIENCE)
    assert isinstance(caught.value, ErrorThatExits)  # made of its parts
    assert actor.say.call_one(1).get(timeout=PATIENCE) == 1


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("adverb", ["call", "call_one", "stream"])
def test_a_result_whose_rebuilding_exits_is_an_error_of_the_reader(
    spawn: Spawn, error: BaseException, adverb: str
) -> None:
    actor = spawn(1).spawn("odd", Odd)
    made = getattr(actor.exits, adverb)(error)
    future = next(made) if adverb == "stream" else made
    for _ in range(2):
        with pytest.raises(RuntimeError, match=type(error).__name__):
            future.get(timeout=PATIENCE)
    assert actor.say.call_one(1).get(timeout=PATIENCE) == 1


def test_a_value_for_a_port_whose_rebuilding_exits_is_an_error_of_the_reader(spawn: Spawn) -> None:
    port, receiver = open_channel()
    spawn(1).spawn("odd", Odd).send.call_one(port, SystemExit(4)).get(timeout=PATIENCE)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="SystemExit"):
            receiver.recv().get(timeout=PATIENCE)


def test_arguments_whose_rebuilding_exits_do_not_end_the_actor(spawn: Spawn) -> None:
    echo = spawn(1).spawn("echo", Echo)
    with pytest.raises(ActorError, match="SystemExit"):
        echo.say.call_one(Exits(SystemExit(5))).get(timeout=PATIENCE)
    assert echo.say.call_one(1).get(timeout=PATIENCE) == 1


def test_ctrl_c_during_unpickling_ends_the_wait_and_keeps_the_answer() -> None:
    result = run_script("""
        import os, signal
        from monarch.actor import Actor, endpoint, this_host

        def rebuild(value):
            if os.environ.pop("PRESS", "") == str(os.getpid()):
                os.kill(os.getpid(), signal.SIGINT)
            return value

        class Odd:
            def __reduce__(self):
                return rebuild, ("rebuilt",)

        class Maker(Actor):
            @endpoint
            def make(self):
                return Odd()

        os.environ["PRESS"] = str(os.getpid())
        future = this_host().spawn_procs().spawn("maker", Maker).make.call_one()
        try:
            future.get()
        except KeyboardInterrupt:
            print("interrupted", future.get())
        """)
    assert result.exit_code == 0, str(result)
    assert result.stdout.strip() == "interrupted rebuilt", str(result)
