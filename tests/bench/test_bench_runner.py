"""Order of rounds, and failures that become rows. No workload runs here, except one that can't."""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Collection
from pathlib import Path

import pytest
from benchmarks.__main__ import list_workloads
from benchmarks.catalog import WORKLOADS, Workload
from benchmarks.environments import Environment, common_payload
from benchmarks.progress import Progress
from benchmarks.runner import Outcome, Settings, execute, interpret, run_suite

from bench.bench_samples import BASELINE, BY_NAME, REFERENCE, THIS

CALL = BY_NAME["call_one_sync"]
SPAWN = BY_NAME["spawn_64"]


class Script:
    """Stands in for processes: answers from a table, and remembers who ran."""

    def __init__(self, failing: Collection[tuple[str, str]] = ()) -> None:
        self.failing = failing
        self.ran: list[tuple[str, str]] = []

    def __call__(self, workload: Workload, environment: Environment, settings: Settings) -> Outcome:
        step = (workload.name, environment.distribution)
        self.ran.append(step)
        if step in self.failing:
            return Outcome(error="exit status 1: boom", output="the traceback")
        return Outcome(float(len(self.ran)), {"p99": 1.0})


def quiet() -> tuple[Progress, io.StringIO]:
    stream = io.StringIO()
    return Progress(stream), stream


def line(unit: str = "µs") -> str:
    return json.dumps(
        {"workload": "x", "value": 5.0, "unit": unit, "extra": {"p99": 6.0}, "finished_at": 10.0}
    )


def test_contestants_run_in_turn_and_back_with_the_floor_before_them() -> None:
    script = Script()
    run_suite([CALL, SPAWN], THIS, REFERENCE, Settings(rounds=3), quiet()[0], script)
    floor = ("floor", "pymonarch")
    calls = [("call_one_sync", "pymonarch"), ("call_one_sync", "torchmonarch")]
    spawns = [("spawn_64", "pymonarch"), ("spawn_64", "torchmonarch")]
    forth = [floor, *calls, floor, *spawns]
    back = [floor, *reversed(calls), floor, *reversed(spawns)]
    assert script.ran == forth + back + forth


def test_a_row_holds_the_samples_of_all_rounds() -> None:
    floor, (row,) = run_suite([CALL], THIS, REFERENCE, Settings(rounds=3), quiet()[0], Script())
    assert row.other is not None
    assert (floor.samples, row.this.samples, row.other.samples) == ((1, 4, 7), (2, 6, 8), (3, 5, 9))
    assert row.floor == 4
    assert row.judged


def test_a_failing_workload_is_a_row_and_the_others_still_run() -> None:
    progress, said = quiet()
    script = Script({("call_one_sync", "pymonarch")})
    _, (call, spawn) = run_suite(
        [CALL, SPAWN], THIS, REFERENCE, Settings(rounds=2), progress, script
    )
    assert (call.verdict, call.this.error) == ("failed", "round 1: exit status 1: boom")
    assert call.other is not None
    assert len(call.other.samples) == len(spawn.this.samples) == 2
    assert "the traceback" in said.getvalue()


def test_a_single_failure_of_the_floor_does_not_lose_the_floor() -> None:
    script = Script()

    def once_broken(workload: Workload, environment: Environment, settings: Settings) -> Outcome:
        outcome = script(workload, environment, settings)
        return Outcome(error="a hiccup") if len(script.ran) == 1 else outcome

    floor, _ = run_suite([CALL], THIS, REFERENCE, Settings(rounds=2), quiet()[0], once_broken)
    assert (floor.value, floor.error) == (4.0, None)


def test_who_failed_once_is_left_out_of_later_rounds() -> None:
    script = Script({("call_one_sync", "torchmonarch")})
    run_suite([CALL], THIS, REFERENCE, Settings(rounds=3), quiet()[0], script)
    assert script.ran.count(("call_one_sync", "torchmonarch")) == 1
    assert script.ran.count(("call_one_sync", "pymonarch")) == 3


@pytest.mark.parametrize(
    ("other", "scale", "judged"),
    [(REFERENCE, 1.0, True), (REFERENCE, 0.1, False), (BASELINE, 1.0, False), (None, 1.0, False)],
)
def test_only_full_runs_against_the_reference_are_judged(
    other: Environment | None, scale: float, judged: bool
) -> None:
    _, (row,) = run_suite(
        [CALL], THIS, other, Settings(rounds=1, scale=scale), quiet()[0], Script()
    )
    assert row.judged == judged


def test_a_good_line_is_a_value_and_the_time_that_the_end_took() -> None:
    outcome = interpret(CALL, 0, 60, f"noise\n{line()}\n", "warnings", ended=10.5)
    assert (outcome.value, outcome.error) == (5.0, None)
    assert outcome.extra == {"p99": 6.0, "exit_s": 0.5}


@pytest.mark.parametrize(
    ("status", "out", "wanted"),
    [
        (None, line(), "no end within 60 s"),
        (3, line(), "exit status 3: last words"),
        (-9, line(), "signal 9: last words"),
        (0, "", "printed no result"),
        (0, "no json", "printed no result"),
        (0, "[1]", "printed no result"),
        (0, line("ms"), "measured in ms, the catalogue says µs"),
    ],
)
def test_every_failure_is_an_error_with_the_output(
    status: int | None, out: str, wanted: str
) -> None:
    outcome = interpret(CALL, status, 60, out, "first\nlast words\n", ended=10.5)
    assert (outcome.value, outcome.error) == (None, wanted)
    assert "last words" in outcome.output


def test_a_program_that_does_not_exist_is_an_outcome() -> None:
    missing = Workload("there_is_no_such_workload", "", "s")
    outcome = execute(missing, Environment("here", Path(sys.executable), "?"), Settings())
    assert outcome.error is not None
    assert outcome.error.startswith("exit status 1: ")


def test_the_payload_is_the_best_type_that_all_environments_have() -> None:
    torch = Environment("a", Path("a"), "a", payloads=("torch", "numpy"))
    numpy = Environment("b", Path("b"), "b", payloads=("numpy",))
    bare = Environment("c", Path("c"), "c")
    assert [common_payload(each) for each in ([torch], [torch, numpy], [torch, bare])] == [
        "torch",
        "numpy",
        "bytes",
    ]


def test_a_variable_of_none_is_removed_from_the_process_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    environment = Environment("a", Path("a"), "a", variables={"PYTHONPATH": None, "ONE": "1"})
    assert "PYTHONPATH" not in environment.process_environment()
    assert environment.process_environment()["ONE"] == "1"


def test_progress_shows_what_is_running_on_a_terminal_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    file, terminal = io.StringIO(), Terminal()
    for stream in (file, terminal):
        progress = Progress(stream)
        progress.status("running")
        progress.say("done")
    assert file.getvalue() == "done\n"
    assert "running" in terminal.getvalue()
    assert terminal.getvalue().endswith("done\n")


def test_the_list_has_every_workload_also_those_that_promise_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    list_workloads(argparse.Namespace())
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {workload.name for workload in WORKLOADS} < set(listed)
