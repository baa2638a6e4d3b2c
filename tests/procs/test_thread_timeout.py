"""A time limit for a block of synchronous code, `monarch.experimental.thread_timeout`."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from monarch.experimental.thread_timeout import ThreadTimeout, ThreadTimeoutError

SHORT = 0.05


def work() -> None:
    """Until it is interrupted."""
    while True:
        sum(range(100))


def work_on() -> None:
    """Whatever happens."""
    try:
        work()
    except BaseException:
        pass


def test_a_block_that_takes_too_long_ends_with_the_error() -> None:
    with pytest.raises(ThreadTimeoutError):
        with ThreadTimeout(SHORT):
            work()


def test_a_block_that_ends_in_time_is_left_alone() -> None:
    for _ in range(100):
        with ThreadTimeout(60):
            pass
    assert not [
        thread
        for thread in threading.enumerate()
        if isinstance(thread, threading.Timer) and not thread.finished.is_set()
    ]


def test_a_block_that_ends_just_then_either_ends_or_raises_and_leaves_nothing_behind() -> None:
    ended = raised = 0
    for attempt in range(300):
        try:
            with ThreadTimeout(0.001):
                sum(range(10_000 * (attempt % 7)))
            ended += 1
        except ThreadTimeoutError:
            raised += 1
    assert ended + raised == 300


def test_code_that_keeps_the_error_does_not_keep_it_from_the_block() -> None:
    with pytest.raises(ThreadTimeoutError):
        with ThreadTimeout(SHORT):
            work_on()


def test_an_error_of_the_block_itself_is_raised_as_it_is() -> None:
    with pytest.raises(ZeroDivisionError):
        with ThreadTimeout(60):
            _ = 1 / 0


def test_another_thread_than_the_main_one_has_a_limit_of_its_own() -> None:
    caught: list[BaseException] = []

    def run() -> None:
        try:
            with ThreadTimeout(SHORT):
                work()
        except BaseException as error:
            caught.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    with ThreadTimeout(60):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [type(error) for error in caught] == [ThreadTimeoutError] * 2


def test_a_limit_is_used_once_and_not_inside_another() -> None:
    limit = ThreadTimeout(60)
    with limit:
        with pytest.raises(RuntimeError, match="do not nest"):
            ThreadTimeout(60).__enter__()
    with pytest.raises(RuntimeError, match="entered once"):
        limit.__enter__()


def test_the_error_passes_handlers_of_exceptions() -> None:
    assert not issubclass(ThreadTimeoutError, Exception)


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_limit_is_positive(seconds: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        ThreadTimeout(seconds)


@pytest.mark.parametrize("seconds", ["1", None, True])
def test_a_limit_is_a_number(seconds: Any) -> None:
    with pytest.raises(TypeError, match="number"):
        ThreadTimeout(seconds)


_TRACED = """
import sys
from monarch.experimental.thread_timeout import ThreadTimeout, ThreadTimeoutError

def called(): ...

try:
    with ThreadTimeout(0.01):
        while True:
            pass
except ThreadTimeoutError:
    pass
sys.settrace(lambda frame, kind, argument: None)
called()
sys.settrace(None)
print("went on")
"""


def test_functions_can_be_traced_after_a_limit_has_been_exceeded() -> None:
    """In a process of its own: one that stands still there hears of no time limit."""
    ended = subprocess.run(
        [sys.executable, "-c", _TRACED], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.returncode) == ("went on\n", 0), ended.stderr
