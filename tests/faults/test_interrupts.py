"""Ctrl-C, and other signals whose handlers raise, while the main thread waits for an answer: the
next call works.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from helpers.actors import Echo, Gate
from helpers.scripts import run_script
from helpers.waiting import wait_until
from monarch._core.calls.waiting import waited_for

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("signals to the client while it waits for a socket")


class Tick(Exception):
    """What the test's own signal handler raises."""


class BareTick(BaseException):
    """As `sys.exit` in a handler: no `Exception`."""


@contextmanager
def raising_on(number: signal.Signals, error: type[BaseException]) -> Iterator[None]:
    def handler(_number: int, _frame: FrameType | None) -> None:
        raise error

    previous = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, previous)


def test_ctrl_c_ends_a_get_that_waits_and_the_call_can_still_be_read(
    spawn: Spawn, tmp_path: Path
) -> None:
    gate = spawn(1).spawn("gate", Gate)
    gate.say.call_one("the connection is up, and is read by whoever waits").get()
    door = tmp_path / "open"
    future = gate.wait_for_file.call_one(str(door))
    killer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        future.get()
    killer.join()
    door.touch()
    assert future.get() == "through"
    assert gate.say.call_one("after").get() == "after"


@pytest.mark.parametrize("error", [Tick, BareTick])
def test_a_handler_that_raises_during_a_get_is_heard_and_the_call_can_still_be_read(
    spawn: Spawn, faults: Faults, tmp_path: Path, error: type[BaseException]
) -> None:
    gate = spawn(1).spawn("gate", Gate)
    gate.say.call_one("the connection is up, and is read by whoever waits").get()
    door = tmp_path / "open"
    future = gate.wait_for_file.call_one(str(door))
    with raising_on(signal.SIGUSR1, error):
        killer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
        killer.start()
        with pytest.raises(error):
            future.get()
        killer.join()
    door.touch()
    assert future.get() == "through"
    assert gate.say.call_one("after").get() == "after"
    assert len(faults) == 0, faults.reports()


@pytest.mark.parametrize("reads", [True, False], ids=["reads", "is woken"])
def test_a_signal_that_another_thread_has_taken_ends_a_get(
    spawn: Spawn, tmp_path: Path, reads: bool
) -> None:
    """As the kernel may give it to any thread: for one, of a process that was stopped."""
    gate = spawn(1).spawn("gate", Gate)
    gate.say.call_one("the connection is up, and is read by whoever waits").get()
    door = tmp_path / "open"
    future = gate.wait_for_file.call_one(str(door))
    other = threading.Thread(target=future.get)
    if not reads:  # another thread does
        other.start()
        wait_until(lambda: future in waited_for, what="the other thread to wait")

    def take() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    with raising_on(signal.SIGUSR1, Tick):
        killer = threading.Timer(0.2, take)
        killer.start()
        with pytest.raises(Tick):
            future.get()
        killer.join()
    door.touch()
    assert future.get() == "through"
    if not reads:
        other.join()


def test_a_signal_that_another_thread_has_taken_ends_the_wait_of_an_admin_interface() -> None:
    for needed in ("starlette", "uvicorn"):
        pytest.importorskip(needed)
    result = run_script("""
        import os, signal, threading
        from monarch.admin.door import Door

        def take():
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)

        door = Door(os.getpid())
        threading.Timer(0.2, take).start()
        try:
            door.wait()
        except KeyboardInterrupt:
            print("heard")
        door.close()
        """)
    assert (result.stdout, result.exit_code) == ("heard\n", 0), str(result)
    assert result.left_behind == []


def test_a_sigterm_handler_that_exits_during_a_get_sets_the_status() -> None:
    result = run_script(
        """
        import signal, sys, time
        from monarch.actor import Actor, endpoint, this_host

        class Slow(Actor):
            @endpoint
            def warm_up(self):
                pass

            @endpoint
            def sleep(self):
                print("sleeping")
                time.sleep(60)

        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
        slow = this_host().spawn_procs().spawn("slow", Slow)
        slow.warm_up.call_one().get()
        slow.sleep.call_one().get()
        """,
        signal_after=("sleeping", signal.SIGTERM),
    )
    assert result.exit_code == 7, str(result)
    assert result.stderr == "", str(result)
    assert result.left_behind == []


def test_a_connection_survives_hundreds_of_interrupts_at_any_moment() -> None:
    # A script of its own: an interrupt may hit anywhere, pytest's own code included.
    result = run_script("""
        import os, signal, threading, time
        from monarch.actor import Actor, endpoint, this_host

        class Echo(Actor):
            @endpoint
            def say(self, value):
                return value

        go = threading.Event()
        over = False

        def interrupt_again_and_again():
            while not over:
                go.wait()
                go.clear()
                time.sleep(0.002)
                if not over:
                    os.kill(os.getpid(), signal.SIGINT)

        procs = this_host().spawn_procs()
        echo = procs.spawn("echo", Echo)
        echo.say.call_one(0).get()
        threading.Thread(target=interrupt_again_and_again, daemon=True).start()
        interrupts = calls = 0
        hung = False
        while interrupts < 400 and not hung:
            try:
                go.set()
                while True:
                    try:
                        echo.say.call_one(1).get()
                        calls += 1
                    except TimeoutError:
                        hung = True
                        break
            except KeyboardInterrupt:
                interrupts += 1
        over = True
        go.set()
        try:
            time.sleep(0.2)
        except KeyboardInterrupt:
            pass
        print("hung:", hung, "answer:", echo.say.call_one(7).get())
        """)
    assert result.exit_code == 0, str(result)
    assert "hung: False answer: 7" in result.stdout, str(result)
    assert result.left_behind == []


def test_no_alarm_or_call_is_lost_when_handlers_raise_during_answers() -> None:
    result = run_script("""
        import signal, time
        from monarch.actor import Actor, endpoint, this_host

        class Echo(Actor):
            @endpoint
            def say(self, value):
                return value

        class Tick(Exception):
            pass

        fired = 0

        def tick(number, frame):
            global fired
            fired += 1
            raise Tick

        echo = this_host().spawn_procs().spawn("echo", Echo)
        echo.say.call_one(0).get()
        signal.signal(signal.SIGALRM, tick)
        swallowed = unanswered = 0
        for _ in range(300):
            before = fired
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.002)
                while fired == before:
                    echo.say.call_one(1).get()
                swallowed += 1
            except TimeoutError:
                unanswered += 1
            except Tick:
                pass
            if swallowed or unanswered:
                break
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("swallowed:", swallowed, "unanswered:", unanswered, "answer:", echo.say.call_one(7).get())
        """)
    assert result.exit_code == 0, str(result)
    assert "swallowed: 0 unanswered: 0 answer: 7" in result.stdout, str(result)
    assert result.stderr == "", str(result)


@pytest.mark.parametrize(
    "name", ["SIGPROF", "SIGVTALRM", "SIGCHLD", "SIGWINCH", "SIGQUIT", "SIGRTMIN"]
)
def test_no_signal_whose_handler_raises_loses_an_answer_or_the_connection(name: str) -> None:
    result = run_script(f"""
        import os, signal, threading
        from monarch.actor import Actor, endpoint, this_host

        class Echo(Actor):
            @endpoint
            def say(self, value):
                return value

        class Tick(Exception):
            pass

        def tick(number, frame):
            raise Tick

        echo = this_host().spawn_procs().spawn("echo", Echo)
        echo.say.call_one(0).get()
        signal.signal(signal.{name}, tick)  # after the first call
        go = threading.Event()
        over = False

        def send():
            while True:
                go.wait()
                go.clear()
                if over:
                    return
                os.kill(os.getpid(), signal.{name})

        sender = threading.Thread(target=send)
        sender.start()
        ticks = unanswered = 0
        while ticks < 200 and not unanswered:
            go.set()
            try:
                while True:
                    try:
                        assert echo.say.call_one(ticks).get() == ticks
                    except TimeoutError:
                        unanswered += 1
                        break
            except Tick:
                ticks += 1
        signal.signal(signal.{name}, signal.SIG_IGN)
        over = True
        go.set()
        sender.join()
        print("unanswered:", unanswered, "answer:", echo.say.call_one(7).get())
        """)
    assert result.exit_code == 0, str(result)
    assert "unanswered: 0 answer: 7" in result.stdout, str(result)
    assert result.stderr == "", str(result)


def test_a_very_long_timeout_is_a_timeout_like_any_other(spawn: Spawn) -> None:
    echo = spawn(1).spawn("echo", Echo)
    for timeout in (10**7, 2**31, 10**12):
        assert echo.say.call_one(timeout).get(timeout=timeout) == timeout
