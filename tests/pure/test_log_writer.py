"""Log files: what is written, how they are bounded, and what a disk that is full or slow does to
it.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.waiting import PATIENCE, wait_until
from monarch._core.hub.prints import NO_AUTHOR, Note
from monarch._core.processes.output import Output, Source
from monarch.logs import files
from monarch.logs.files import LogFiles, json_of, text_of
from monarch.logs.line import LogLine, log_lines

TRAINER = Source("trainers", 1, "gpus=1", "machine", 2, 4, False, "uid.1")
RECORD = Note("trainers", "train", 40, "a.library", "file.py:12", 3.5)


def said(*texts: str, source: Source = TRAINER, note: Note = NO_AUTHOR) -> Output:
    return Output(source, "stdout", 1.25, [(note, "\n".join(texts))])


class Told:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> None:
        self.texts.append(text)


class Later:
    """Calls when it is told to."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def __call__(self, seconds: float, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def pass_time(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def log(tmp_path: Path, told: Told, later: Later) -> Iterator[LogFiles]:
    log = LogFiles(tmp_path, "a job", 1000, 3, told, later)
    yield log
    log.close()


def flush(log: LogFiles) -> None:
    written = threading.Event()
    log.flush(written.set)
    assert written.wait(PATIENCE)


def no_room() -> None:
    raise AssertionError("there was room all the time")


def numbers(*paths: Path) -> list[int]:
    return [int(line.split()[-1]) for path in paths for line in path.read_text().splitlines()]


@given(
    st.lists(st.text() | st.text('\\"n\n\0é'), min_size=1, max_size=3),
    st.sampled_from([NO_AUTHOR, RECORD, Note("an_actor", "run")]),
)
def test_each_line_of_the_json_file_is_a_line_of_the_log(texts: list[str], note: Note) -> None:
    output = said(*texts, note=note)
    *written, end = json_of([output], "a job").split("\n")
    assert end == ""
    assert [LogLine.from_json(line) for line in written] == list(log_lines(output, "a job"))


def test_the_file_for_people_has_the_time_and_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, end = text_of([said("hello", "you")]).split("\n")
    assert first.endswith(".250 hello")
    assert second == first.replace("hello", "you")
    assert len(first.split()[0]) == len("2026-01-31")
    assert end == ""


def test_the_lines_of_a_rank_are_in_files_of_its_name(log: LogFiles, tmp_path: Path) -> None:
    other = TRAINER._replace(mesh="a/b\n", rank=7, proc="uid.7")
    assert log.put(said("one", "two"), no_room)
    assert log.put(said("three", source=other), no_room)
    flush(log)
    assert sorted(path.name for path in (tmp_path / "machine").iterdir()) == [
        "a_b__7.jsonl", "a_b__7.log", "trainers_1.jsonl", "trainers_1.log"
    ]  # fmt: skip
    lines = (tmp_path / "machine" / "trainers_1.jsonl").read_text().splitlines()
    assert [LogLine.from_json(line).text for line in lines] == ["one", "two"]
    assert log.place_of(TRAINER) == str(tmp_path / "machine" / "trainers_1.log")
    assert os.stat(log.place_of(TRAINER)).st_mode & 0o777 == 0o600


def test_files_are_bounded_in_size_and_number_and_keep_what_came_last(
    log: LogFiles, tmp_path: Path
) -> None:
    for start in range(0, 400, 40):
        log.put(said(*(f"line {number}" for number in range(start, start + 40))), no_room)
        flush(log)
    folder = tmp_path / "machine"
    names = ["trainers_1.log.2", "trainers_1.log.1", "trainers_1.log"]
    assert sorted(path.name for path in folder.glob("*.log*")) == sorted(names)
    kept = numbers(*(folder / name for name in names))
    assert kept == list(range(kept[0], 400))
    assert len(kept) > 40
    assert all(path.stat().st_size <= 1000 for path in folder.iterdir())


def test_one_file_is_all_there_is_if_so_asked_for(tmp_path: Path, told: Told) -> None:
    log = LogFiles(tmp_path, "a job", 1000, 1, told, Later())
    log.put(said(*(f"line {number}" for number in range(300))), no_room)
    log.close()
    assert [path.name for path in sorted((tmp_path / "machine").iterdir())] == [
        "trainers_1.jsonl",
        "trainers_1.log",
    ]
    assert numbers(tmp_path / "machine" / "trainers_1.log")[-1] == 299


def test_another_program_that_goes_on_with_a_job_appends(
    log: LogFiles, tmp_path: Path, told: Told
) -> None:
    log.put(said("one"), no_room)
    log.close()
    path = tmp_path / "machine" / "trainers_1.jsonl"
    with path.open("a") as file:
        file.write('{"time": 1.0, "str')  # its host agent was killed
    again = LogFiles(tmp_path, "a job", 1000, 3, told, Later())
    again.put(said("two", "three"), no_room)
    again.close()
    first, torn, *rest = path.read_text().splitlines()
    assert [LogLine.from_json(line).text for line in (first, *rest)] == ["one", "two", "three"]
    assert torn == '{"time": 1.0, "str', "a line that was cut stands alone"


def test_two_workers_of_one_machine_never_write_to_the_same_file(
    log: LogFiles, tmp_path: Path, told: Told
) -> None:
    log.put(said("one"), no_room)
    flush(log)
    other = LogFiles(tmp_path, "a job", 1000, 3, told, Later())
    other.put(said("two"), no_room)
    other.close()
    texts = {
        path.name: LogLine.from_json(path.read_text()).text
        for path in (tmp_path / "machine").glob("*.jsonl")
    }
    assert texts == {"trainers_1.jsonl": "one", "trainers_1-2.jsonl": "two"}


def test_no_more_files_are_open_than_a_bound(
    log: LogFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_OPEN", 3)
    for turn in range(2):
        for rank in range(10):
            log.put(
                said(f"line {turn}", source=TRAINER._replace(rank=rank, proc=f"uid.{rank}")),
                no_room,
            )
    flush(log)
    assert len(log._files) == 3
    assert all(
        numbers(tmp_path / "machine" / f"trainers_{rank}.log") == [0, 1] for rank in range(10)
    )


def test_the_files_of_a_proc_that_has_ended_are_closed_until_it_starts_again(
    log: LogFiles, tmp_path: Path
) -> None:
    other = TRAINER._replace(rank=7, proc="uid.7")
    log.put(said("line 1"), no_room)
    log.put(said("line 1", source=other), no_room)
    log.ended(TRAINER)
    flush(log)
    assert list(log._files) == [tmp_path / "machine" / "trainers_7"]
    log.put(said("line 2"), no_room)
    flush(log)
    assert len(log._files) == 2
    assert numbers(tmp_path / "machine" / "trainers_1.log") == [1, 2]
    log.ended(TRAINER._replace(rank=3))  # it has printed nothing


def test_files_that_were_removed_are_made_again(log: LogFiles, tmp_path: Path) -> None:
    log.put(said("one"), no_room)
    flush(log)
    shutil.rmtree(tmp_path / "machine")
    log.put(said("two"), no_room)
    flush(log)
    (line,) = (tmp_path / "machine" / "trainers_1.jsonl").read_text().splitlines()
    assert LogLine.from_json(line).text == "two"


class Disk:
    """Writes that wait, or fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.begun = threading.Event()
        self.error = 0
        write = os.write

        def slow_write(fd: int, data: bytes) -> int:
            if threading.current_thread().name == "monarch-log-files":
                self.begun.set()
                assert self.goes_on.wait(PATIENCE)
                if self.error:
                    raise OSError(self.error, os.strerror(self.error))
            return write(fd, data)

        monkeypatch.setattr(os, "write", slow_write)


def test_only_who_writes_more_than_the_disk_takes_waits(
    log: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_WAITING", 100)
    disk = Disk(monkeypatch)
    disk.goes_on.clear()
    room = threading.Event()
    assert not log.put(said("x" * 200), room.set)
    assert disk.begun.wait(PATIENCE)
    other = TRAINER._replace(rank=2, proc="uid.2")
    assert log.put(said("y" * 50, source=other), no_room), "another proc does not wait"
    assert not room.is_set()
    disk.goes_on.set()
    assert room.wait(PATIENCE)
    assert log.put(said("z"), no_room)


def test_a_disk_that_is_full_is_told_once_and_tried_again(
    log: LogFiles, told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    disk.error = errno.ENOSPC
    for text in ("one", "two", "three"):
        assert log.put(said(text), no_room)
        flush(log)
    (text,) = told.texts
    assert "No space left on device" in text
    assert str(tmp_path) in text
    disk.error = 0
    monkeypatch.setattr(files, "_STUCK", 0.0)  # the time after which it is tried again is over
    log.put(said("four"), no_room)
    flush(log)
    assert told.texts[1:] == [
        f"monarch: log files are written in {tmp_path} again; 3 lines are missing in them"
    ]
    assert (tmp_path / "machine" / "trainers_1.log").read_text().endswith("four\n")


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("kind", [".log", ".jsonl"])
def test_a_path_that_cannot_be_written_is_the_trouble_of_one_rank(
    log: LogFiles, told: Told, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "machine" / f"trainers_1{kind}").mkdir(parents=True)
    other = TRAINER._replace(rank=2, proc="uid.2")
    log.put(said("0", source=other), no_room)
    flush(log)
    before = open_files()
    for number in range(1, 4):
        log.put(said("lost"), no_room)
        log.put(said(str(number), source=other), no_room)
        flush(log)
    assert open_files() == before
    assert numbers(tmp_path / "machine" / "trainers_2.log") == [0, 1, 2, 3]
    (text,) = told.texts
    assert "lines are missing in" in text and "trainers_1.log: Is a directory" in text
    (tmp_path / "machine" / f"trainers_1{kind}").rmdir()
    log.put(said("4"), no_room)
    flush(log)
    assert numbers(tmp_path / "machine" / "trainers_1.log") == [4]


def test_lines_of_a_rank_that_cannot_be_written_harm_no_other(
    log: LogFiles, told: Told, tmp_path: Path
) -> None:
    other = TRAINER._replace(rank=2, proc="uid.2")
    log.put(said("lost", note=RECORD._replace(time=float("inf"))), no_room)
    log.put(said("1", source=other), no_room)
    flush(log)
    assert numbers(tmp_path / "machine" / "trainers_2.log") == [1]
    (text,) = told.texts
    assert "OverflowError" in text


def test_names_of_files_are_bounded_in_bytes(log: LogFiles, told: Told, tmp_path: Path) -> None:
    log.put(said("1", source=TRAINER._replace(mesh="\N{PILE OF POO}" * 90)), no_room)
    flush(log)
    assert told.texts == []
    assert [numbers(path) for path in (tmp_path / "machine").glob("*_1.log")] == [[1]]


def test_who_flushes_is_answered_at_once_where_the_disk_does_not_answer(
    log: LogFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    disk.goes_on.clear()
    assert log.put(said("one"), no_room)
    assert disk.begun.wait(PATIENCE)
    monkeypatch.setattr(files, "_STUCK", 0.0)  # the time for which it is waited is over
    wait_until(lambda: time.monotonic() > log._moved, what="the clock to go on")
    flush(log)
    assert not disk.goes_on.is_set()
    disk.goes_on.set()


def test_who_has_flushed_before_the_disk_hangs_is_answered_once_when_it_does(
    log: LogFiles, later: Later, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    disk.goes_on.clear()
    answers: list[int] = []
    log.put(said("one"), no_room)
    assert disk.begun.wait(PATIENCE)
    log.flush(lambda: answers.append(1))
    later.pass_time()
    assert answers == []  # it is slow
    monkeypatch.setattr(files, "_STUCK", 0.0)  # the time for which it is waited is over
    wait_until(lambda: time.monotonic() > log._moved, what="the clock to go on")
    later.pass_time()
    assert answers == [1]
    disk.goes_on.set()
    flush(log)
    assert answers == [1]
    later.pass_time()
    assert later.calls == []


def test_a_disk_that_does_not_answer_is_not_waited_for(
    log: LogFiles, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_WAITING", 100)
    disk = Disk(monkeypatch)
    disk.goes_on.clear()
    assert not log.put(said("x" * 200), lambda: None)
    assert disk.begun.wait(PATIENCE)
    monkeypatch.setattr(files, "_STUCK", 0.0)  # the time for which it is waited is over
    assert log.put(said("y" * 200), no_room)
    disk.goes_on.set()
    flush(log)
    wait_until(lambda: not log._busy, what="the writer to be idle")
    monkeypatch.setattr(files, "_STUCK", PATIENCE)
    log.put(said("z"), no_room)
    flush(log)
    assert "1 lines are missing" in told.texts[-1]
