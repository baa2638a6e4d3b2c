from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from helpers.each import for_each
from monarch import _interrupts as interrupts
from monarch._core.net.waiter import Waiter
from monarch._interrupts import HeldInterrupts

PATIENCE = 20.0
Handlers = Callable[[Any], Any]


def nothing() -> None: ...


def interrupt() -> None:
    """As Ctrl-C does; the handler has run when this returns."""
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def _handler_unchanged() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    after = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, before)
    assert after is before


@pytest.fixture
def use() -> Iterator[Handlers]:
    """Sets the program's own handler for one test."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_delivered_after_the_context_and_not_in_it() -> None:
    steps: list[str] = []
    held = HeldInterrupts(lambda: steps.append("woken"))

    def read() -> None:
        with held:
            interrupt()
            steps.append("went on")

    with pytest.raises(KeyboardInterrupt):
        read()
    assert steps == ["woken", "went on"]
    assert held.came


def test_without_an_interrupt_nothing_happens() -> None:
    woken: list[None] = []
    with HeldInterrupts(lambda: woken.append(None)) as held:
        pass
    assert not held.came
    assert not woken
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_several_interrupts_are_delivered_as_one(use: Handlers) -> None:
    calls: list[tuple[int, FrameType | None]] = []
    use(lambda number, frame: calls.append((number, frame)))
    with HeldInterrupts(nothing):
        for _ in range(3):
            interrupt()
        assert not calls
    (number, frame), *others = calls
    assert number == signal.SIGINT
    assert frame is not None
    assert frame.f_code.co_name == "interrupt"  # where it came: a profiler looks at what ran then
    assert not others
    interrupt()
    assert len(calls) == 2


def test_a_handler_that_does_not_raise_lets_the_program_go_on(use: Handlers) -> None:
    seen: list[int] = []
    use(lambda number, frame: seen.append(number))
    with HeldInterrupts(nothing):
        interrupt()
    assert seen == [signal.SIGINT]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_program_without_a_handler_of_its_own_is_left_as_it_is(
    use: Handlers, handler: signal.Handlers
) -> None:
    use(handler)
    with HeldInterrupts(nothing) as held:
        assert signal.getsignal(signal.SIGINT) is handler
        if handler is signal.SIG_IGN:
            interrupt()
    assert not held.came
    assert signal.getsignal(signal.SIGINT) is handler


def test_an_error_in_the_context_gives_the_handler_back() -> None:
    with pytest.raises(ValueError, match="an error"), HeldInterrupts(nothing):
        raise ValueError("an error")
    with pytest.raises(KeyboardInterrupt):
        interrupt()


def test_an_interrupt_that_came_before_an_error_is_delivered_and_tells_the_error() -> None:
    def fail() -> None:
        with HeldInterrupts(nothing):
            interrupt()
            raise ValueError("an error")

    with pytest.raises(KeyboardInterrupt) as caught:
        fail()
    assert isinstance(caught.value.__context__, ValueError)


def test_contexts_in_each_other_deliver_once_at_the_end_of_the_outer(use: Handlers) -> None:
    calls: list[str] = []
    use(lambda number, frame: calls.append("program"))
    with HeldInterrupts(nothing) as outer:
        with HeldInterrupts(nothing) as inner:
            interrupt()
        assert inner.came
        assert outer.came
        assert not calls
    assert calls == ["program"]


def test_other_threads_hold_nothing() -> None:
    found: list[Any] = []

    def work() -> None:
        with HeldInterrupts(nothing) as held:
            found.append((signal.getsignal(signal.SIGINT), held.came))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)
    assert found == [(before, {})]


class Came(Exception):
    pass


def raise_came(number: int, frame: object) -> None:
    if number >= signal.SIGRTMIN:
        raise Came(f"SIGRTMIN+{number - signal.SIGRTMIN}")
    named = number in set(signal.Signals)  # 16 has no name in Python 3.10
    raise Came(signal.Signals(number).name if named else str(number))


@pytest.fixture
def catch() -> Iterator[Callable[[int], None]]:
    """Lets a signal raise `Came`, for one test."""
    before: dict[int, Any] = {}

    def install(number: int) -> None:
        before.setdefault(number, signal.signal(number, raise_came))

    yield install
    for number, handler in before.items():
        signal.signal(number, handler)


CAUGHT = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


@for_each("number", CAUGHT)
def test_every_signal_with_a_handler_is_held_also_if_that_is_new(
    number: int, catch: Callable[[int], None]
) -> None:
    steps: list[str] = []

    def read() -> None:
        with HeldInterrupts(lambda: steps.append("woken")):
            signal.raise_signal(number)
            steps.append("went on")

    catch(number)
    with pytest.raises(Came):
        read()
    # any other signal wakes as well
    assert list(dict.fromkeys(steps)) == ["woken", "went on"] and steps[-1] == "went on"
    assert signal.getsignal(number) is raise_came


def test_a_handler_that_raises_does_not_lose_other_signals(catch: Callable[[int], None]) -> None:
    held = (signal.SIGCHLD, signal.SIGPROF, signal.SIGRTMIN + 3)
    for number in held:
        catch(number)

    def read() -> None:
        with HeldInterrupts(nothing):
            for number in held:
                signal.raise_signal(number)

    with pytest.raises(Came) as caught:
        read()
    told: list[str] = []
    error: BaseException | None = caught.value
    while error is not None:
        told += map(str, error.args)
        error = error.__context__
    assert sorted(told) == ["SIGCHLD", "SIGPROF", "SIGRTMIN+3"]


def test_a_signal_at_either_end_of_the_context_leaves_handlers_alone(
    catch: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    catch(signal.SIGUSR1)
    catch(signal.SIGWINCH)
    install = vars(interrupts)["_signal"].signal
    moments = []

    class Signals:
        """Lets a signal come before each handler that is set, in turn."""

        @staticmethod
        def signal(number: int, handler: Any) -> Any:
            moments.append(number)
            if len(moments) == at:
                signal.raise_signal(signal.SIGWINCH)
            return install(number, handler)

    monkeypatch.setattr(interrupts, "_signal", Signals)
    raised = 0
    for at in range(1, 7):  # noqa: B007  # read above
        moments.clear()
        try:
            with HeldInterrupts(nothing):
                pass
        except Came:
            raised += 1
        assert signal.getsignal(signal.SIGUSR1) is raise_came
        assert signal.getsignal(signal.SIGWINCH) is raise_came
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert raised == 6


def test_an_interrupt_ends_the_wait_of_the_thread_that_holds_it() -> None:
    here, there = socket.socketpair()
    waiter = Waiter()
    waiting = threading.Event()

    def send() -> None:
        assert waiting.wait(PATIENCE)
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=send)
    other.start()
    readable: list[bool] = []

    def wait() -> None:
        with HeldInterrupts(waiter.interrupt):
            waiting.set()
            readable.append(waiter.wait(here.fileno(), PATIENCE))

    with here, there:
        with pytest.raises(KeyboardInterrupt):
            wait()
        other.join(PATIENCE)
    assert readable == [False]
