"""The threads that copy: they come with the work, share it, and go."""

from __future__ import annotations

import threading

import pytest

from helpers.waiting import wait_until
from monarch.rdma.paths.workers import Workers


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "copies of a test"]


def test_jobs_are_done_and_the_threads_end() -> None:
    workers = Workers("copies of a test", threading.Thread)
    done: list[int] = []
    for number in range(100):
        # a default binds it
        workers.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    wait_until(lambda: len(done) == 100, what="all jobs")
    assert sorted(done) == list(range(100))
    wait_until(lambda: not threads(), what="the end of the threads")


def test_more_jobs_that_wait_for_each_other_than_threads_come_to_an_end() -> None:
    workers = Workers("copies of a test", threading.Thread)
    workers.share = 4
    done: list[int] = []
    finished = threading.Semaphore(0)

    def outer(number: int) -> None:
        workers.spread(range(5), lambda part: done.append(10 * number + part))
        finished.release()

    for number in range(40):
        # a default binds it
        workers.submit(lambda number=number: outer(number))  # type: ignore[misc]
    for _ in range(40):
        finished.acquire()
    assert len(done) == 200


def test_all_parts_are_done_before_spread_returns() -> None:
    workers = Workers("copies of a test", threading.Thread)
    workers.share = 3
    both = threading.Barrier(2)  # passed only by two threads at one time
    done: list[int] = []

    def work(part: int) -> None:
        both.wait()
        done.append(part)

    workers.spread(range(2), work)
    assert sorted(done) == [0, 1]


def test_the_error_of_a_part_is_raised_and_what_was_not_begun_is_left_out() -> None:
    workers = Workers("copies of a test", threading.Thread)
    workers.share = 1
    begun: list[int] = []

    def work(part: int) -> None:
        begun.append(part)
        if part == 2:
            raise ValueError("the third part")

    with pytest.raises(ValueError, match="third"):
        workers.spread(range(10), work)
    assert begun == [0, 1, 2]
