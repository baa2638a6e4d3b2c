"""What is known of each line that a proc prints or records, as it reaches the client."""

from __future__ import annotations

import asyncio
import contextlib
import io
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers.waiting import PATIENCE
from monarch._core.client.client import client
from monarch._core.processes.output import Output
from monarch.actor import Actor, endpoint
from monarch.logs.line import LogLine, log_lines

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("output is read from pipes")

Read = Callable[[], list[LogLine]]


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> Read:
    """The lines that have come since the last time."""
    lines: list[LogLine] = []

    class Captures:
        due = None

        def show(self, output: Output) -> None:
            lines.extend(log_lines(output, "a job"))

        def expire(self) -> None: ...
        def flush(self) -> None: ...

    monkeypatch.setattr(client().printer, "_view", Captures())

    def read() -> list[LogLine]:
        got = lines[:]
        del lines[:]
        return got

    return read


class Talks(Actor):
    def __init__(self) -> None:
        print("in the constructor")

    @endpoint
    def say(self, text: str, end: str = "\n") -> None:
        print(text, end=end, flush=True)

    @endpoint
    def say_in_a_thread(self, text: str) -> None:
        thread = threading.Thread(target=print, args=(text,))
        thread.start()
        thread.join()

    @endpoint
    def have_others_say(self) -> None:
        subprocess.run(["echo", "a child process"], check=True)
        os.write(2, b"a C library\n")

    @endpoint
    def log(self, text: str) -> None:
        try:
            raise ValueError("the reason")
        except ValueError:
            logging.getLogger("a.library").exception(text)

    @endpoint
    def log_by_handlers_of_its_own(self, path: str) -> None:
        logger = logging.getLogger("mine")
        logger.propagate = False
        logger.setLevel(logging.DEBUG)
        for handler in (logging.StreamHandler(sys.stdout), logging.FileHandler(path)):
            logger.addHandler(handler)
        logger.debug("said once")

    @endpoint
    def log_with_rich(self) -> None:
        from rich.logging import RichHandler

        logger = logging.getLogger("of.rich")
        logger.propagate = False
        logger.addHandler(RichHandler())
        logger.warning("shown by rich")

    @endpoint
    def write_elsewhere(self, path: str) -> None:
        print("before")
        kept = os.dup(1)
        with open(path, "wb") as file:
            os.dup2(file.fileno(), 1)
            print("to a file")
            logging.StreamHandler(sys.stdout).handle(logging.makeLogRecord({"msg": "recorded"}))
            os.dup2(kept, 1)
        os.close(kept)
        with contextlib.redirect_stdout(io.StringIO()) as text:
            print("to a string")
        print("after", repr(text.getvalue()))


class TalksAsync(Actor):
    @endpoint
    async def say(self, text: str) -> None:
        await asyncio.gather(
            asyncio.to_thread(print, f"{text} in a thread"), self._say(f"{text} in a task")
        )

    async def _say(self, text: str) -> None:
        print(text)


def test_a_line_says_where_it_was_printed_and_by_which_actor_and_endpoint(
    spawn: Spawn, captured: Read
) -> None:
    talks = spawn(2).spawn("talks", Talks)
    talks.say.call("hello").get(timeout=PATIENCE)
    lines = sorted(captured(), key=lambda line: (line.rank, line.time))
    assert [(line.rank, line.point, line.endpoint, line.text) for line in lines] == [
        (0, "gpus=0", "", "in the constructor"),
        (0, "gpus=0", "say", "hello"),
        (1, "gpus=1", "", "in the constructor"),
        (1, "gpus=1", "say", "hello"),
    ]
    assert {(line.stream, line.level, line.host, line.actor, line.job) for line in lines} == {
        ("stdout", 0, os.uname().nodename, "talks", "a job")
    }


def test_lines_of_threads_and_tasks_of_an_endpoint_are_its_own(
    spawn: Spawn, captured: Read
) -> None:
    procs = spawn()
    procs.spawn("talks", Talks).say_in_a_thread.call_one("in a thread").get(timeout=PATIENCE)
    procs.spawn("others", TalksAsync).say.call_one("async").get(timeout=PATIENCE)
    lines = {line.text: (line.actor, line.endpoint) for line in captured()}
    del lines["in the constructor"]
    assert lines == {
        "in a thread": ("talks", "say_in_a_thread"),
        "async in a thread": ("others", "say"),
        "async in a task": ("others", "say"),
    }


def test_lines_of_child_processes_and_c_libraries_have_no_author(
    spawn: Spawn, captured: Read
) -> None:
    talks = spawn().spawn("talks", Talks)
    talks.have_others_say.call_one().get(timeout=PATIENCE)
    talks.say.call_one("then a line").get(timeout=PATIENCE)
    lines = {line.text: (line.actor, line.stream) for line in captured()}
    assert lines["a child process"] == ("", "stdout")
    assert lines["a C library"] == ("", "stderr")
    assert lines["then a line"] == ("talks", "stdout")


def test_a_record_keeps_level_logger_place_and_traceback_in_one_line(
    spawn: Spawn, captured: Read
) -> None:
    spawn().spawn("talks", Talks).log.call_one("it failed").get(timeout=PATIENCE)
    (line,) = [line for line in captured() if line.stream == "log"]
    assert (line.level, line.logger, line.actor, line.endpoint) == (
        logging.ERROR,
        "a.library",
        "talks",
        "log",
    )
    assert line.location.startswith("test_log_capture.py:")
    assert "it failed\nTraceback (most recent call last):\n" in line.text
    assert line.text.endswith("\nValueError: the reason")


def test_handlers_of_the_user_keep_working_and_nothing_is_said_twice(
    spawn: Spawn, captured: Read, tmp_path: Path
) -> None:
    file = tmp_path / "log"
    spawn().spawn("talks", Talks).log_by_handlers_of_its_own.call_one(str(file)).get(
        timeout=PATIENCE
    )
    (line,) = [line for line in captured() if "said once" in line.text]
    assert (line.stream, line.level, line.logger) == ("log", logging.DEBUG, "mine")
    assert file.read_text() == line.text + "\n", "a file of the user gets text, and nothing of ours"


def test_a_record_that_rich_shows_is_one_line_with_its_level(spawn: Spawn, captured: Read) -> None:
    pytest.importorskip("rich")
    spawn().spawn("talks", Talks).log_with_rich.call_one().get(timeout=PATIENCE)
    (line,) = [line for line in captured() if "shown by rich" in line.text]
    assert (line.stream, line.level, line.logger, line.actor) == (
        "log",
        logging.WARNING,
        "of.rich",
        "talks",
    )
    assert line.location.startswith("test_log_capture.py:")


def test_what_a_program_has_turned_elsewhere_gets_nothing_of_ours(
    spawn: Spawn, captured: Read, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    spawn().spawn("talks", Talks).write_elsewhere.call_one(str(file)).get(timeout=PATIENCE)
    assert file.read_bytes() == b"to a file\nrecorded\n"
    assert [line.text for line in captured()][1:] == ["before", "after 'to a string\\n'"]


def test_a_line_that_two_calls_print_has_one_head(spawn: Spawn, captured: Read) -> None:
    talks = spawn(2).spawn("talks", Talks)
    talks.say.call("one, ", end="").get(timeout=PATIENCE)
    talks.say.call("two").get(timeout=PATIENCE)
    lines = [(line.text, line.endpoint) for line in captured() if line.endpoint]
    assert lines == [("one, two", "say")] * 2
