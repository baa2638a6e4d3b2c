"""What procs print: the heads of lines, and what an answer waits for."""

from __future__ import annotations

import io
import logging
import os
import threading
from collections.abc import Iterator

import pytest

from helpers.waiting import PATIENCE, wait_until
from monarch._core.actors.log import install, who_prints
from monarch._core.hub import prints
from monarch._core.hub.prints import BEGIN, END, Note, head_of, read_note
from monarch._core.wire.address import ProcAddress

RECORD = Note("trainers", "train", 40, "a.library", "file.py:12", 3.5)
CLIENT = ProcAddress("host", "client")


class Pipe:
    """A stream of a proc that writes to a pipe of the agent's, and the end that the agent reads."""

    def __init__(self) -> None:
        self.reads, self._writes = os.pipe()
        self.raw = prints._Noted(self._writes, "w")
        self.stream = io.TextIOWrapper(
            io.BufferedWriter(self.raw), "utf-8", newline="\n", line_buffering=True
        )

    def close(self) -> None:
        self.stream.close()
        os.close(self.reads)


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    pipe = Pipe()
    monkeypatch.setattr(prints, "unshown", False)
    monkeypatch.setattr(prints, "_streams", {pipe.stream: pipe.raw})
    monkeypatch.setattr(prints, "_read_by_agent", {os.fstat(pipe.reads).st_ino})
    yield pipe
    pipe.close()


@pytest.mark.parametrize("time", [float("inf"), float("-inf"), float("nan"), 1.7e18, -1.0])
def test_a_record_that_was_made_at_no_time_was_made_when_it_was_read(time: float) -> None:
    assert read_note(head_of(RECORD)) == RECORD
    assert read_note(head_of(RECORD._replace(time=time))) == RECORD._replace(time=0.0)


def test_a_foreign_record_is_written_though_it_lacks_attributes(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    monkeypatch.setattr(prints, "who", who_prints)
    handler = logging.StreamHandler(pipe.stream)
    for strange in (
        {"pathname": None},
        {"filename": None},
        {"created": None},
        {"levelno": "high"},
        {"name": None},
    ):
        handler.handle(
            logging.makeLogRecord(
                {"msg": f"without {list(strange)}", "levelno": 30, "name": "a", **strange}
            )
        )
    text = os.read(pipe.reads, 1 << 16).decode()
    assert text.count("without [") == text.count("\n") == 5


def test_what_cannot_say_who_prints_does_not_keep_anybody_from_printing(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Note:
        raise ZeroDivisionError("in who")

    monkeypatch.setattr(prints, "who", lambda: Note("trainers", "train"))
    print("begun, ", end="", file=pipe.stream, flush=True)
    monkeypatch.setattr(prints, "who", fail)
    print("said", file=pipe.stream)
    assert (
        os.read(pipe.reads, 1000)
        == head_of(Note("trainers", "train")) + b"begun, " + head_of(prints.NO_AUTHOR) + b"said\n"
    )


def test_an_answer_does_not_wait_for_a_thread_whose_print_waits(pipe: Pipe) -> None:
    data = b"x" * (1 << 20)  # more than a pipe takes
    printing = threading.Thread(target=lambda: print(data.decode(), file=pipe.stream), daemon=True)
    printing.start()
    wait_until(lambda: pipe.raw.writer == printing.ident, what="a print that waits")
    answering = threading.Thread(target=lambda: prints.flag(CLIENT, CLIENT), daemon=True)
    answering.start()
    answering.join(PATIENCE)
    answered = not answering.is_alive()
    read = b""
    while not read.endswith(b"\n"):
        read += os.read(pipe.reads, 1 << 16)
    printing.join()
    answering.join()
    assert answered
    assert read == data + b"\n"
    assert BEGIN not in read and END not in read
    assert not pipe.raw.writer
