from __future__ import annotations

import mmap
import resource
from concurrent.futures import ThreadPoolExecutor

from monarch._core.net.scratch import scratch
from monarch._core.wire.frame import READ_SIZE


def pages_touched() -> tuple[int, int]:
    """What this thread has touched of its piece when it has got it, and when it has written all of
    it.
    """
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    memory = scratch.memory
    got = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    memory[:] = bytes(READ_SIZE)
    return got - before, resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def test_memory_to_read_into_is_there_when_it_is_read_into_and_no_sooner() -> None:
    with ThreadPoolExecutor(1) as thread:
        got, written = thread.submit(pages_touched).result()
    assert got < READ_SIZE // mmap.PAGESIZE // 2 <= written


def test_each_thread_has_a_piece_of_its_own_and_keeps_it() -> None:
    with ThreadPoolExecutor(1) as thread:
        first, again = (thread.submit(lambda: scratch.memory).result() for _ in range(2))
    assert first is again
    assert first is not scratch.memory
    assert scratch.memory is scratch.memory
    assert len(first) == len(scratch.memory) == READ_SIZE
