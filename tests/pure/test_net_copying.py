from __future__ import annotations

import _thread
import os
import random
import threading
from collections.abc import Callable

import pytest

from monarch._copying import copy

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, MIB - 1, 8 * MIB + 5, 32 * MIB, 33 * MIB + 4109])
@pytest.mark.parametrize("readonly", [True, False])
def test_every_byte_is_copied_and_none_beside_them(size: int, readonly: bool) -> None:
    data = random.Random(size).randbytes(size)
    target = bytearray(size + 2)
    copy(memoryview(target)[1 : size + 1], memoryview(data if readonly else bytearray(data)))
    assert target[1 : size + 1] == data
    assert target[0] == target[size + 1] == 0


def test_no_thread_is_left_and_the_memory_is_let_go() -> None:
    before = threading.active_count()
    data, target = bytearray(os.urandom(MIB) * 40), bytearray(40 * MIB)
    copy(memoryview(target), memoryview(data))
    assert threading.active_count() == before
    data.append(0)  # refused while anything has its memory
    target.append(0)


def test_without_a_thread_to_spare_one_copies_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: Callable[[], object], args: tuple[()]) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    data, target = bytearray(os.urandom(MIB) * 40), bytearray(40 * MIB)
    copy(memoryview(target), memoryview(data))
    assert target == data


def test_a_thread_that_comes_late_finds_nothing_to_do_and_keeps_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late: list[Callable[[], object]] = []
    monkeypatch.setattr(_thread, "start_new_thread", lambda function, args: late.append(function))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    data, target = bytearray(os.urandom(MIB) * 40), bytearray(40 * MIB)
    copy(memoryview(target), memoryview(data))
    assert target == data
    data[0] ^= 1
    data.append(0)  # refused while anything has its memory
    target.append(0)
    late[0]()
    assert target[0] != data[0]


def test_both_threads_copy_their_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    start = _thread.start_new_thread
    begun, copied = threading.Event(), threading.Event()

    def start_and_wait(function: Callable[[], object], args: tuple[()]) -> int:
        def run() -> None:
            begun.set()
            function()
            copied.set()

        thread = start(run, ())
        begun.wait(60)
        return thread

    monkeypatch.setattr(_thread, "start_new_thread", start_and_wait)
    for size in (16 * MIB, 64 * MIB + 77):
        copied.clear()
        data, target = bytearray(random.Random(size).randbytes(size)), bytearray(size)
        copy(memoryview(target), memoryview(data))
        assert target == data
        assert copied.wait(60)
