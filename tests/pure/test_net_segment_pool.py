from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from helpers.leaks import nothing_left
from monarch._core.net import segment_pool
from monarch._core.net.segment import map_segment
from monarch._core.net.segment_pool import POOLED_SIZE, SegmentPool

Later = list[Callable[[], None]]


@pytest.fixture(autouse=True)
def _nothing_left() -> Iterator[None]:
    with nothing_left():
        yield


@pytest.fixture
def pool(later: Later) -> Iterator[SegmentPool]:
    pool = SegmentPool(lambda seconds, function: later.append(function))
    yield pool
    pool.forget()


@pytest.fixture
def later() -> Later:
    return []


def send(pool: SegmentPool, data: bytes) -> int:
    """The descriptor that a receiver gets."""
    segment = pool.make([data])
    assert segment is not None
    return os.dup(segment.fd)


def file_of(fd: int) -> int:
    return os.fstat(fd).st_ino


A, B = (letter * POOLED_SIZE for letter in (b"a", b"b"))


def test_a_file_is_written_again_once_its_receiver_has_let_go(pool: SegmentPool) -> None:
    files = set()
    for data in (A, B, A, B):
        fd = send(pool, data)
        files.add(file_of(fd))
        memory = map_segment(fd)
        assert bytes(memory) == data
        del memory
    assert len(files) == 1


def test_what_a_receiver_has_is_not_written_to(pool: SegmentPool) -> None:
    first = map_segment(send(pool, A))
    part = first[10:20]
    del first  # a part holds the whole
    second = map_segment(send(pool, B))
    assert bytes(part) == b"a" * 10
    assert bytes(second) == B
    del part
    third = map_segment(send(pool, b"c" * POOLED_SIZE))
    assert bytes(second) == B
    assert bytes(third[:1]) == b"c"


def test_what_is_still_on_its_way_is_not_written_to(pool: SegmentPool) -> None:
    here, there = socket.socketpair()
    with here, there:
        fd = send(pool, A)
        socket.send_fds(here, [b"x"], [fd])
        os.close(fd)
        os.close(send(pool, B))
        _, (received,), _, _ = socket.recv_fds(there, 1, 1)
        assert bytes(map_segment(received)) == A


def test_what_an_unsent_message_holds_is_not_written_to(pool: SegmentPool) -> None:
    segment = pool.make([A])
    assert segment is not None
    os.close(send(pool, B))
    assert os.pread(segment.fd, 1, 0) == b"a"


def test_the_file_of_a_receiver_that_was_killed_is_written_again(pool: SegmentPool) -> None:
    fd = send(pool, A)
    file = file_of(fd)
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        memory = map_segment(fd)
        os.write(tell, bytes(memory[:1]))
        signal.pause()
    os.close(fd)
    assert os.read(ready, 1) == b"a"
    other = send(pool, B)
    assert file_of(other) != file
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    fd = send(pool, A)
    assert file_of(fd) == file
    for each in (fd, other, ready, tell):
        os.close(each)


def test_files_that_are_not_used_again_are_let_go(
    pool: SegmentPool, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_pool, "_KEEP", 0.0)
    before = len(os.listdir("/proc/self/fd"))
    os.close(send(pool, A))
    os.close(send(pool, A + B))
    assert len(os.listdir("/proc/self/fd")) == before + 2
    assert len(later) == 1
    later.pop()()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not later  # nothing is left that would have to be looked at
    os.close(send(pool, A))
    assert len(later) == 1


def test_no_more_memory_is_kept_than_the_limit(
    pool: SegmentPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_pool, "_LIMIT", 2 * POOLED_SIZE)
    before = len(os.listdir("/proc/self/fd"))
    held = [map_segment(send(pool, A)) for _ in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before + 2
    assert all(bytes(memory) == A for memory in held)


def test_a_small_message_does_not_take_a_much_larger_file(pool: SegmentPool) -> None:
    large = send(pool, A * 3)
    file = file_of(large)
    os.close(large)
    small = send(pool, A)
    assert file_of(small) != file
    os.close(small)


def test_several_buffers_come_out_as_they_went_in_also_from_a_used_file(pool: SegmentPool) -> None:
    for turn in range(3):
        buffers = [bytes([turn + 1]) * 100, bytes([turn + 101]) * (2 * POOLED_SIZE + 5), b""]
        segment = pool.make(buffers)
        assert segment is not None
        memory = map_segment(os.dup(segment.fd))
        assert bytes(memory[:100]) == buffers[0]
        assert bytes(memory[128 : 128 + len(buffers[1])]) == buffers[1]
        del memory, segment


def test_where_the_system_has_no_leases_nothing_is_written_again(
    pool: SegmentPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(errno.EINVAL, "no leases")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    fds = [send(pool, data) for data in (A, B, A)]
    assert len({file_of(fd) for fd in fds}) == 3
    for fd in fds:
        os.close(fd)


def test_threads_that_send_at_the_same_time_never_share_a_file(pool: SegmentPool) -> None:
    wrong: list[int] = []

    def run(number: int) -> None:
        data = bytes([number]) * POOLED_SIZE
        for _ in range(30):
            memory = map_segment(send(pool, data))
            if bytes(memory) != data:
                wrong.append(number)
            del memory

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_a_pool_that_forgets_does_not_touch_what_it_had(pool: SegmentPool) -> None:
    file = send(pool, A)
    pool.forget()
    other = send(pool, B)
    assert file_of(file) != file_of(other)
    assert os.pread(file, 1, 0) == b"a"
    os.close(file)
    os.close(other)
