"""The paths in docs/journey_of_a_message.md are those that programs take: each is followed through
all of its processes.

The page lists the functions of each path. All of them must be entered, in each thread in the order
of the list. And nothing may go another way: where something leaves a thread (a message is sent,
another thread is woken, an answer is there), all that led to it, from module to module, must be on
the list. What is only looked up leads to nothing, and need not be. Each way leads in one direction:
up the floors to the part that acts, and down from there.

Each path is followed several times, and once as the page says is enough: on a busy machine another
thread may read an answer.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers.following import Entered, Function, follow

PAGE = Path(__file__).parents[2] / "docs" / "journey_of_a_message.md"
PATH = re.compile(
    r"^<!-- path: (?P<name>\w+) -->\n```text\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
STEP = re.compile(r"^(?P<where>\S+ / \S+)? {2,}(?P<function>\S+) {2,}\S")
# The numbers of rounds. A call costs little, and where the machine is busy the I/O thread may read
# the answer.
CALLS, SPAWNS, DEATHS, OPERATIONS = range(1, 41), range(101, 109), range(151, 159), range(1, 21)

# Where something leaves a thread, for another one or for another process.
LEAVES = {
    "net.connection.send",
    "net.poller.call_soon",
    "actors.sync_cell._put",
    "client.faults.put",
    "processes.control.send_message",
    "processes.spawner._fork",
}
WAKES_READER = "net.waiter.wake"  # as does an answer; an actor has its mailbox
FLOORS = ("net", "calls", "hub", "actors", "processes", "client", "mesh", "tensor_engine")
FOLLOWED = """
    import os, signal, threading
    from sitecustomize import awaited, switch
    from helpers.following import name_processes
    from helpers.processes import parent_of
    from monarch.actor import Actor, endpoint, this_host
    import monarch.actor

    class Echo(Actor):
        @endpoint
        def echo(self, value):
            return value

        @endpoint
        def pid(self):
            return os.getpid()

    def spawn(name="procs"):
        procs = this_host().spawn_procs({"x": 1}, name=name)
        procs.initialized.get()
        return procs

    def serve(procs):
        actor = procs.spawn("echo", Echo)
        pid = actor.pid.call_one().get()
        name_processes(client=os.getpid(), proc=pid, spawner=parent_of(pid), agent=parent_of(parent_of(pid)))
        return actor, pid
"""


class Step(NamedTuple):
    where: str
    function: str

    def __str__(self) -> str:
        return f"{self.where}: {self.function}"


def path(name: str) -> list[Step]:
    """The steps of a path on the page; a line that does not say where goes on where the one before
    it was.
    """
    body = next(found["body"] for found in PATH.finditer(PAGE.read_text()) if found["name"] == name)
    steps: list[Step] = []
    for line in body.splitlines():
        step = STEP.match(line)
        assert step is not None, f"no step: {line!r}"
        steps.append(Step(step["where"] or steps[-1].where, step["function"]))
    return steps


def not_entered(steps: list[Step], entered: list[Entered]) -> list[str]:
    """For each thread, the first step that did not come after those before it."""
    missing = []
    for where in dict.fromkeys(step.where for step in steps):
        notes = (Step(where, note.function.short) for note in entered if note.where == where)
        missing += [step for step in steps if step.where == where and step not in notes][:1]
    return [f"not entered, or before what stands above it: {step}" for step in missing]


def led_to(note: Entered, entered_there: set[Function]) -> list[Function]:
    """What led to a function since its thread last woke up or read a message, from module to
    module, outermost first.
    """
    since = itertools.takewhile(
        lambda function: function.short != "net.connection.receive", note.stack
    )
    stack = [function for function in since if function in entered_there][::-1]
    return [
        function
        for caller, function in zip([None, *stack], stack, strict=False)
        if caller is None or caller.module != function.module
    ]


def not_listed(steps: list[Step], entered: list[Entered]) -> list[str]:
    """What led to something that left its thread, and is not on the list."""
    found = {Step(note.where, function.short) for note, way in ways(entered) for function in way}
    return [
        f"not listed, and leads to a message or another thread: {step}"
        for step in sorted(found - set(steps))
    ]


def ways(entered: list[Entered]) -> list[tuple[Entered, list[Function]]]:
    """For all that left its thread, how it came to that."""
    there: dict[str, set[Function]] = {}
    for note in entered:
        there.setdefault(note.where, set()).add(note.function)
    found = [
        (
            note,
            [function for function in led_to(note, there[note.where]) if is_on_a_floor(function)],
        )
        for note in entered
        if note.function.short in LEAVES
        or (note.function.short == WAKES_READER and note.stack[1].module.startswith("calls."))
    ]
    return [(note, way) for note, way in found if way]


def is_on_a_floor(function: Function) -> bool:
    package = function.module.partition(".")[0]
    return (
        package in FLOORS
        and (package != "net" or function.short in {*LEAVES, WAKES_READER})
        and not function.name.endswith(">")
    )


def turned_round(entered: list[Entered]) -> list[str]:
    """Ways that do not lead up to the part that acts and from there down, but up again, or through
    a module time after time.
    """
    found = []
    for note, way in ways(entered):
        # a method that goes on with the one that it overrides is one step
        way = [
            step
            for step, inner in itertools.zip_longest(way, way[1:])
            if inner is None or inner.last != step.last
        ]
        floors = [FLOORS.index(step.module.partition(".")[0]) for step in way]
        top = floors.index(max(floors))
        passed = Counter(step.module for step in way)
        if (
            floors != sorted(floors[:top]) + sorted(floors[top:], reverse=True)
            or max(passed.values()) > 2
        ):
            found.append(f"{note.where}: turns round: {' > '.join(step.short for step in way)}")
    return found


def check(name: str, rounds: dict[int, list[Entered]], numbers: range) -> None:
    steps = path(name)
    problems = [
        not_entered(steps, rounds[number])
        + not_listed(steps, rounds[number])
        + turned_round(rounds[number])
        for number in numbers
    ]
    best = min(problems, key=len)
    assert not best, "\n".join([f"docs/{PAGE.name}, path {name}:", *best])


@pytest.fixture(scope="module")
def rounds() -> dict[int, list[Entered]]:
    return follow(
        FOLLOWED,
        f"""
        procs = spawn()
        actor, _ = serve(procs)
        for _ in range(20):
            actor.echo.call_one(1).get()
        for number in {CALLS}:
            switch[0] = number
            actor.echo.call_one(1).get()
            switch[0] = 0

        told = threading.Event()  # by what the client has asked; the agent tells the owner as well
        monarch.actor.unhandled_fault_hook = lambda failure: told.set()
        for number, end in zip({SPAWNS}, {DEATHS}):
            switch[0] = number
            started = spawn(f"procs{{number}}")
            switch[0] = 0
            _, pid = serve(started)
            told.clear()
            over = awaited["_procs_ended"] = threading.Event()
            switch[0] = end
            os.kill(pid, signal.SIGKILL)
            assert told.wait(20) and over.wait(20)
            switch[0] = 0
        """,
    )


def test_a_call_takes_the_path_that_the_page_says(rounds: dict[int, list[Entered]]) -> None:
    check("call_one", rounds, CALLS)


def test_processes_start_on_the_path_that_the_page_says(rounds: dict[int, list[Entered]]) -> None:
    check("spawn_procs", rounds, SPAWNS)


def test_news_of_a_death_takes_the_path_that_the_page_says(
    rounds: dict[int, list[Entered]],
) -> None:
    check("death", rounds, DEATHS)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.slow
def test_a_tensor_operation_takes_the_path_that_the_page_says() -> None:
    rounds = follow(
        FOLLOWED,
        f"""
        import torch
        from monarch import inspect

        procs = spawn()
        serve(procs)
        with procs.activate():
            a, b = torch.ones(3), torch.ones(3)
            inspect(a + b)
            for number in {OPERATIONS}:
                switch[0] = number
                inspect(a + b)
                switch[0] = 0
        """,
    )
    check("tensor", rounds, OPERATIONS)
