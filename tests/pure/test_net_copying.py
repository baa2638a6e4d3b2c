from __future__ import annotations

import os
import random
import threading

import pytest

from monarch._core.net.copying import copy

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
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    data, target = bytearray(os.urandom(MIB) * 40), bytearray(40 * MIB)
    copy(memoryview(target), memoryview(data))
    assert target == data
