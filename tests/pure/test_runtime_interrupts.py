from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from monarch._core.net.waiter import Waiter
from monarch._core.runtime.interrupts import HeldInterrupts

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
    assert calls == [(signal.SIGINT, None)]
    interrupt()
    assert len(calls) == 2


def test_a_handler_that_does_not_raise_lets_the_program_go_on(use: Handlers) -> None:
    seen: list[int] = []
    use(lambda number, frame: seen.append(number))
    with HeldInterrupts(nothing):
        interrupt()
    assert seen == [signal.SIGINT]


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_program_without_a_handler_of_its_own_is_left_as_it_is(use: Handlers, handler: signal.Handlers) -> None:
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
    assert found == [(before, [])]


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
