"""Which pipes of procs are read, and when: with pipes, but no process; the clock stands still."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch._core.hub.spawn_requests import SpawnRequest
from monarch._core.net.poller import Timer
from monarch._core.processes import output, proc_output
from monarch._core.processes.output import Output, Source
from monarch._core.processes.proc_entry import ProcEntry, SpawnedMesh
from monarch._core.processes.proc_output import ProcOutput
from monarch._core.wire.address import ActorAddress, ProcAddress

CLIENT = ProcAddress("host", "client")


class Clock:
    """The thread of an agent, step by step: what is ready is called by `turn`, timers by `wait`."""

    def __init__(self) -> None:
        self.now = 100.0
        self.handlers: dict[int, Callable[[int], None]] = {}
        self.soon: list[Callable[[], object]] = []
        self.later: list[tuple[float, Timer]] = []

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def add(self, fd: int, handler: Callable[[int], None]) -> None:
        assert fd not in self.handlers
        self.handlers[fd] = handler

    def remove(self, fd: int) -> None:
        self.handlers.pop(fd, None)

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        self.later.append((self.now + seconds, timer))
        return timer

    def turn(self) -> None:
        for fd, handler in list(self.handlers.items()):
            if fd in self.handlers:
                handler(1)
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    def wait(self, seconds: float) -> None:
        self.now += seconds
        due = [timer for at, timer in self.later if at <= self.now]
        self.later = [(at, timer) for at, timer in self.later if at > self.now]
        for timer in due:
            if timer.callback is not None:
                timer.callback()


def lines(output: Output) -> list[str]:
    return [text for _, texts in output.said for text in texts]


class Sink:
    def __init__(self) -> None:
        self.taken: list[str] = []
        self.has_room = True
        self.room: Callable[[], None] = lambda: None

    def put(self, output: Output, room: Callable[[], None]) -> bool:
        self.taken += lines(output)
        self.room = room
        return self.has_room

    def place_of(self, source: Source) -> str:
        return f"the file of {source.mesh} {source.rank}"

    def ended(self, source: Source) -> None:
        self.taken.append(f"the end of {source.proc}")

    def flush(self, then: Callable[[], None]) -> None:
        then()

    def close(self) -> None: ...


class World:
    """An agent with one proc."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.shown: list[str] = []
        self.messages: list[list[Output]] = []
        self.output = ProcOutput(cast(Any, self.clock), self._publish, lambda: False)
        request = SpawnRequest(
            "uid",
            "trainers",
            {"gpus": 2},
            2,
            (),
            ActorAddress(CLIENT, 1),
            CLIENT,
            [],
            "/",
            None,
            (),
            {},
        )
        self.entry = ProcEntry(
            ProcAddress("host", "uid.1"), SpawnedMesh(request, "machine"), 1, 0, now=10.0
        )
        (out, self.stdout), (err, self.stderr) = os.pipe(), os.pipe()
        self.output.follow(self.entry, out, err)

    def _publish(self, client: ProcAddress, together: list[Output]) -> bool:
        self.messages.append(together)
        self.shown += [line for output in together for line in lines(output)]
        return True

    def print(self, text: str) -> None:
        os.write(self.stdout, text.encode() + b"\n")

    def end(self) -> None:
        self.output.finish(self.entry)
        os.close(self.stdout)
        os.close(self.stderr)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    monkeypatch.setattr(proc_output, "time", world.clock)
    yield world
    world.end()


def test_lines_that_follow_each_other_closely_are_read_together(world: World) -> None:
    for number in range(10):
        world.print(f"line {number}")
        world.clock.turn()
    assert world.shown == ["line 0", "line 1"], "the first is shown at once"
    world.clock.wait(proc_output._GATHER)
    world.clock.turn()
    assert world.shown == [f"line {number}" for number in range(10)]
    world.clock.wait(1)
    world.print("later")
    world.clock.turn()
    assert world.shown[-1] == "later"


def test_what_several_pipes_say_in_a_while_is_one_message(world: World) -> None:
    for number in range(5):
        for pipe in (world.stdout, world.stderr):
            os.write(pipe, f"{pipe} says {number}\n".encode())
        world.clock.turn()
    before = len(world.messages)
    for number in range(5, 8):
        for pipe in (world.stdout, world.stderr):
            os.write(pipe, f"{pipe} says {number}\n".encode())
        world.clock.wait(proc_output._GATHER)
        assert len(world.clock.later) == 1, "one timer, however many gather"
    assert [len(message) for message in world.messages[before:]] == [2, 2, 2]
    for pipe in (world.stdout, world.stderr):
        of_one = [line for line in world.shown if line.startswith(f"{pipe} ")]
        assert of_one == [f"{pipe} says {number}" for number in range(8)]


def test_a_pipe_that_can_not_be_listened_to_leaves_those_of_others_alone(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        world.print(f"line {number}")
        os.write(world.stderr, b"a warning\n")
        world.clock.turn()
    add = world.clock.add

    def full(fd: int, handler: Callable[[int], None]) -> None:
        monkeypatch.setattr(world.clock, "add", add)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(world.clock, "add", full)
    world.print("line 3")
    os.write(world.stderr, b"the last\n")
    for _ in range(3):
        world.clock.wait(proc_output._GATHER)
        world.clock.turn()
    assert "No space left on device" in caplog.text
    assert {"line 3", "the last"} <= set(world.shown)


def test_pipes_that_fall_silent_are_listened_to_again(world: World) -> None:
    for text in ("one", "two", "three"):
        world.print(text)
        world.clock.turn()
    world.clock.wait(proc_output._GATHER)
    world.clock.wait(proc_output._GATHER)
    assert world.shown == ["one", "two", "three"]
    assert len(world.clock.handlers) == 2
    assert world.clock.later == []


def test_who_asks_for_what_was_printed_does_not_wait_for_lines_to_gather(world: World) -> None:
    for number in range(10):
        world.print(f"line {number}")
        world.clock.turn()
    passed: list[int] = []
    world.output.passed_on(lambda: passed.append(len(world.shown)))
    for _ in range(3):
        world.clock.turn()
    assert passed == [10]


def test_a_proc_whose_sink_is_full_is_not_read_until_there_is_room(world: World) -> None:
    sink = world.output.sinks[CLIENT] = Sink()
    sink.has_room = False
    world.print("one")
    world.clock.turn()
    world.print("two")
    world.clock.turn()
    world.clock.wait(1)
    world.clock.turn()
    assert sink.taken == ["one"]
    passed: list[str] = []
    world.output.passed_on(lambda: passed.extend(world.shown), ["uid.1"])
    for _ in range(3):
        world.clock.turn()
    assert passed == [], "what the proc has printed is not all passed on"
    sink.has_room = True
    sink.room()
    for _ in range(4):
        world.clock.turn()
    assert sink.taken == passed == ["one", "two"]


def test_a_proc_does_not_wait_for_ever_for_a_sink_that_has_died(world: World) -> None:
    sink = world.output.sinks[CLIENT] = Sink()
    sink.has_room = False
    for text in ("one", "two", "three"):
        world.print(text)
        world.clock.turn()
        world.clock.wait(proc_output._PATIENCE)
    world.clock.turn()
    assert sink.taken == ["one", "two", "three"]


def test_what_a_proc_has_printed_before_its_end_is_taken_though_there_is_no_room(
    world: World,
) -> None:
    sink = world.output.sinks[CLIENT] = Sink()
    sink.has_room = False
    world.print("one")
    world.clock.turn()
    world.print("two")
    world.output.finish(world.entry)
    assert world.shown == ["one", "two"]
    assert sink.taken == ["one", "two", "the end of uid.1"]
    assert world.clock.handlers == {}


def test_without_files_a_proc_waits_until_the_client_has_shown_its_lines(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proc_output, "_MOST_UNSHOWN", 100)
    world.print("x" * 101)
    world.clock.turn()
    world.print("two")
    world.clock.turn()
    assert len(world.shown) == 1
    world.output.shown("uid.1", 101)
    world.clock.turn()
    assert world.shown[1:] == ["two"]


def test_with_files_lines_are_left_out_and_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = world.output.sinks[CLIENT] = Sink()
    monkeypatch.setattr(proc_output, "_MOST_UNSHOWN", 100)
    world.print("x" * 101)
    world.clock.turn()
    for number in range(3):
        world.clock.wait(1)
        world.print(f"line {number}")
        world.clock.turn()
    assert len(world.shown) == 1
    world.output.shown("uid.1", 101)
    world.clock.wait(1)
    world.print("shown again")
    world.clock.turn()
    left_out = "monarch: 3 lines were left out here; they are in the file of trainers 1"
    assert world.shown[1:] == [left_out, "shown again"]
    assert sink.taken[1:] == ["line 0", "line 1", "line 2", "shown again"]


def test_a_pipe_that_ends_while_its_lines_gather_delays_no_answer(world: World) -> None:
    for text in ("one", "two"):
        world.print(text)
        world.clock.turn()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, world.stdout)  # as daemons do: the pipe ends, the proc goes on
    os.close(nowhere)
    passed: list[int] = []
    for number in range(3):
        # bound now
        world.output.passed_on(lambda number=number: passed.append(number))  # type: ignore[misc]
        for _ in range(3):
            world.clock.turn()
    assert passed == [0, 1, 2]
    assert world.shown == ["one", "two"]


def test_who_asks_for_what_was_printed_is_answered_though_a_sink_fails(world: World) -> None:
    class Broken(Sink):
        def put(self, output: Output, room: Callable[[], None]) -> bool:
            raise RuntimeError("a fault in a sink")

    for text in ("one", "two"):
        world.print(text)
        world.clock.turn()
    world.print("three")
    world.output.sinks[CLIENT] = Broken()
    passed: list[str] = []
    world.output.passed_on(lambda: passed.append("all"))
    world.clock.turn()
    with pytest.raises(RuntimeError, match="a fault in a sink"):
        world.clock.turn()
    assert passed == ["all"]


@given(
    st.lists(
        st.sampled_from(["a", "b" * 900, "c" * 4095, "d" * 5000, "\n", "\n", "\N{SNOWMAN}" * 3])
    )
)
def test_pieces_that_the_system_keeps_whole_are_of_whole_lines(parts: list[str]) -> None:
    text = "".join(parts)
    pieces = list(output._short_pieces(text))
    assert "".join(pieces) == text
    assert all(piece.endswith("\n") for piece in pieces[:-1])
    assert all(len(piece.encode()) <= select.PIPE_BUF or piece.count("\n") <= 1 for piece in pieces)
    assert len(list(output._short_pieces("a line\n" * 500))) == 1
