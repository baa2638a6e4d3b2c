"""The memory that outlives a process: what was written is read, and what is garbage does no
harm.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.hub.black_box import (
    SIZE,
    SLOT_COUNT,
    BlackBox,
    BoxActor,
    BoxCall,
    BoxEvent,
    content_of,
    empty_out,
    take_over,
)

HERE = "proc@host"


@pytest.fixture
def box() -> Iterator[BlackBox]:
    made = BlackBox(HERE)
    yield made
    os.close(made.fd)


def raw(box: BlackBox) -> bytes:
    fd = take_over(os.getpid(), box.fd, HERE)
    assert fd >= 0
    return empty_out(fd)


def actor(uid: int, name: str = "trainer") -> BoxActor:
    return BoxActor(uid, 3, name, "package.Class", "<root>.<trainer>", 0, 17, "Idle", 2, 99)


def test_what_was_written_is_read(box: BlackBox) -> None:
    slot = box.begin(1_000, 7, 8, 9, 10, b"step\0gpus\x004")
    box.happened(BoxEvent(5, 8, "Idle", ""))
    box.happened(BoxEvent(6, 8, "Failed", "a\treason\nof two lines, \\ and ü"))
    box.happened(BoxEvent(7, 8, "Failed", "no \x1f separator \x1e of ours"))
    box.happened(BoxEvent(8, 8, "Idle", "\ud800"))
    box.report([BoxCall(8, "step", 3, 0), actor(8, "tab\there")])
    found = content_of(raw(box))
    assert found.current == [(1_000, 7, 8, 9, 10, b"step\0gpus\x004")]
    assert found.life == [
        (5, 8, "Idle", ""),
        (6, 8, "Failed", "a\treason\nof two lines, \\ and ü"),
        (8, 8, "Idle", "\\ud800"),
    ]
    assert found.actors == [actor(8, "tab\there")] and found.calls == [(8, "step", 3, 0)]
    box.end(slot)
    assert content_of(raw(box)).current == []


def test_life_is_a_ring_that_keeps_the_latest_whole(box: BlackBox) -> None:
    events = [BoxEvent(number, number, "Created", "x" * (number % 300)) for number in range(1_000)]
    for event in events:
        box.happened(event)
    found = content_of(raw(box)).life
    assert len(found) > 20 and found == events[-len(found) :]


def test_more_messages_than_slots_are_handled_at_once_without_harm(box: BlackBox) -> None:
    slots = [box.begin(1, number, 0, 0, 0, b"m" * 1_000) for number in range(SLOT_COUNT + 5)]
    assert slots[-5:] == [0] * 5 and len(set(slots)) == SLOT_COUNT + 1
    assert {each.meta for each in content_of(raw(box)).current} == {b"m" * 84}
    for slot in slots[:-5]:
        box.end(slot)
    assert box.begin(1, 0, 0, 0, 0, b"again")


def test_a_report_that_is_too_long_loses_its_end_only(box: BlackBox) -> None:
    box.report([actor(1)])
    box.report(actor(number) for number in range(2_000))
    found = content_of(raw(box)).actors
    assert len(found) > 100 and found == [actor(number) for number in range(len(found))]


def test_a_report_that_was_not_finished_leaves_the_one_before(box: BlackBox) -> None:
    box.report([actor(1)])

    def dies() -> Iterator[BoxActor]:
        yield actor(2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        box.report(dies())
    assert content_of(raw(box)).actors == [actor(1)]


def test_a_descriptor_that_is_not_the_box_of_that_process_is_not_taken(
    box: BlackBox, tmp_path: os.PathLike[str]
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert take_over(os.getpid(), box.fd, "another@host") == -1
    assert take_over(os.getpid(), 1_000_000, HERE) == -1
    with open(os.path.join(tmp_path, "file"), "wb+") as file:
        file.truncate(SIZE)
        assert take_over(os.getpid(), file.fileno(), HERE) == -1
    assert len(os.listdir("/proc/self/fd")) == before


@given(st.binary(max_size=400), st.integers(0, SIZE - 400), st.integers(0, 2**64 - 1))
def test_a_process_that_has_lost_its_mind_leaves_a_box_that_can_be_read(
    garbage: bytes, at: int, word: int
) -> None:
    made = BlackBox(HERE)
    try:
        made.happened(BoxEvent(1, 2, "Idle", ""))
        made.report([actor(1)])
        data = bytearray(empty_out(take_over(os.getpid(), made.fd, HERE)))
    finally:
        os.close(made.fd)
    data[16:24] = word.to_bytes(8, "little")
    data[at : at + len(garbage)] = garbage
    found = content_of(bytes(data))
    uids = (
        [event.uid for event in found.life]
        + [each.uid for each in found.actors]
        + [call.uid for call in found.calls]
    )
    assert all(isinstance(uid, int) for uid in uids)
    assert content_of(b"") == ([], [], [], [])


def test_an_event_in_the_middle_of_another_one_on_its_thread_is_kept(box: BlackBox) -> None:
    """As of a finalizer, or of the handler of a signal, at whichever line that comes."""
    passed = 0

    def in_between(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal passed
        if frame.f_code.co_filename != BlackBox.happened.__code__.co_filename:
            return None
        if event == "line":
            passed += 1
            if passed == line:
                box.happened(BoxEvent(-line, 8, "Stopped", "by a finalizer"))  # which is not traced
        return in_between

    def write() -> None:
        sys.settrace(in_between)
        box.happened(BoxEvent(line, 8, "Idle", "at first"))
        sys.settrace(None)

    line = 0
    while passed >= line:
        line, passed = line + 1, 0
        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        thread.join()
    times = [event.time for event in content_of(raw(box)).life]
    assert line > 10 and sorted(times) == [*range(1 - line, 0), *range(1, line + 1)]


def test_events_of_many_threads_are_each_kept_once(box: BlackBox) -> None:
    def write(number: int) -> None:
        for each in range(20):
            box.happened(BoxEvent(number * 20 + each, 8, "Idle", ""))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(event.time for event in content_of(raw(box)).life) == list(range(160))


def test_a_message_is_valid_only_when_all_of_it_is_written(box: BlackBox) -> None:
    with pytest.raises(struct.error):
        box.begin(1_000, 7, 8, 9, "no size")  # type: ignore[arg-type]
    assert content_of(raw(box)).current == []


def test_a_fork_lets_go_of_the_box_of_its_parent() -> None:
    made = BlackBox(HERE)
    kept = os.dup(made.fd)
    try:
        slot = made.begin(1_000, 7, 8, 9, 10, b"step")
        made.abandon()
        assert all(
            os.stat(f"/proc/self/fd/{fd}").st_ino != os.fstat(kept).st_ino for fd in others(kept)
        )
        made.end(slot)  # of a message that the parent handles as well
        made.happened(BoxEvent(1, 2, "Idle", ""))
        found = content_of(os.pread(kept, SIZE, 0))
        assert [each.number for each in found.current] == [7] and not found.life
    finally:
        os.close(kept)


def others(kept: int) -> list[str]:
    return [
        fd
        for fd in os.listdir("/proc/self/fd")
        if fd != str(kept) and os.path.exists(f"/proc/self/fd/{fd}")
    ]


def test_what_is_no_file_is_no_box_and_stays_open_nowhere(
    monkeypatch: pytest.MonkeyPatch, box: BlackBox
) -> None:
    def fails(*arguments: object) -> bytes:
        raise OSError

    before = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patch:
        patch.setattr("os.pread", fails)
        assert take_over(os.getpid(), box.fd, HERE) == -1
    assert len(os.listdir("/proc/self/fd")) == before
