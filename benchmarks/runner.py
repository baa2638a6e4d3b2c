"""Run workloads: each in a fresh subprocess, the contestants in turn and back (ABC ACB ABC),
medians at the end.

A failure of any kind (exit status, timeout, nonsense on stdout) is a value here, so one broken
workload is one row.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO

from benchmarks import processes
from benchmarks.catalog import FLOOR_WORKLOAD, Workload
from benchmarks.environments import REPOSITORY, Environment
from benchmarks.machine import scrub
from benchmarks.progress import Progress
from benchmarks.results import Extra, Row, Side, floor_of, merge_extras
from benchmarks.targets import REFERENCE

OUTPUT_TAIL = 40
LEAVE_S = 5.0  # how long what a workload spawned may outlive it


@dataclass(frozen=True)
class Outcome:
    """One execution of one workload: a value, or an `error` in one line and the `output` to show
    with it.
    """

    value: float | None = None
    extra: Extra = field(default_factory=dict)
    error: str | None = None
    output: str = ""


@dataclass(frozen=True)
class Settings:
    """How to run. `timeout_factor` stretches every workload's own limit, for slow machines."""

    rounds: int = 3
    scale: float = 1.0
    payload: str = "bytes"
    timeout_factor: float = 1.0


Execute = Callable[[Workload, Environment, Settings], Outcome]


def command(workload: Workload, environment: Environment, settings: Settings) -> list[str]:
    """The program to start, from the repository's root."""
    program = [str(environment.python), "-m", f"benchmarks.workloads.{workload.name}"]
    return [*program, "--scale", str(settings.scale), "--payload", settings.payload]


def execute(workload: Workload, environment: Environment, settings: Settings) -> Outcome:
    """Run one workload once, in a session of its own, and leave nothing running.

    Output goes to files, not pipes: a process left behind would hold a pipe open and hang us with
    it.
    """
    limit = workload.timeout_s * settings.timeout_factor
    mark = processes.new_mark()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command(workload, environment, settings),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=REPOSITORY,
            env={**environment.process_environment(), processes.MARK: mark},
            start_new_session=True,
        )
        status, left = None, 0
        try:
            status = process.wait(limit)
            ended = time.monotonic()
            left = len(processes.wait_until_gone(mark, LEAVE_S))
        except subprocess.TimeoutExpired:
            ended = time.monotonic()
        finally:
            processes.kill(mark)
            process.wait()
        outcome = interpret(workload, status, limit, _text(out), _text(err), ended)
    if left and outcome.error is None:
        return Outcome(
            error=f"{left} of its processes still ran {LEAVE_S:g} s after it", output=outcome.output
        )
    return outcome


def interpret(
    workload: Workload, status: int | None, limit: float, out: str, err: str, ended: float
) -> Outcome:
    """What an execution amounted to.

    `status` None means that it ran into its limit; `ended` is a monotonic time.
    """
    output = "\n".join((out + "\n" + err).strip().splitlines()[-OUTPUT_TAIL:])
    if status is None:
        return Outcome(error=f"no end within {limit:g} s", output=output)
    if status:
        reason = f"signal {-status}" if status < 0 else f"exit status {status}"
        return Outcome(error=_with_last_line(reason, err), output=output)
    try:
        line = json.loads(out.strip().splitlines()[-1])
        value, unit, extra = float(line["value"]), line["unit"], dict(line["extra"])
        extra["exit_s"] = ended - line["finished_at"]
    except (IndexError, KeyError, TypeError, ValueError):
        return Outcome(error="printed no result", output=output)
    if unit != workload.unit:
        return Outcome(
            error=f"measured in {unit}, the catalogue says {workload.unit}", output=output
        )
    return Outcome(value, extra)


@dataclass
class _Tally:
    """The outcomes of one workload in one environment while the rounds go on."""

    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return any(outcome.error is not None for outcome in self.outcomes)

    def side(self, strict: bool = True) -> Side:
        """The samples and the first error.

        Without `strict`, an error counts only if there are no samples.
        """
        good = [
            (outcome.value, outcome.extra) for outcome in self.outcomes if outcome.value is not None
        ]
        errors = [
            f"round {number}: {outcome.error}"
            for number, outcome in enumerate(self.outcomes, 1)
            if outcome.error
        ]
        samples = tuple(value for value, _ in good)
        return Side(
            samples,
            merge_extras([extra for _, extra in good]),
            errors[0] if errors and (strict or not samples) else None,
        )


def run_suite(
    workloads: Sequence[Workload],
    this: Environment,
    other: Environment | None,
    settings: Settings,
    progress: Progress,
    run: Execute = execute,
) -> tuple[Side, tuple[Row, ...]]:
    """All rounds of all workloads: in each round, for each workload, the floor, this, the other; in
    every second one, the floor, the other, this. What ran just before leaves its mark (caches, free
    memory, the clock of the cores), on both alike.

    Who failed a workload once is not asked again: with a timeout that would cost minutes per round.
    `run` is the seam for tests.

    Returns:
        The floor, pooled over all workloads and rounds, and one row per workload.
    """
    floor = _Tally()
    contestants = [environment for environment in (this, other) if environment is not None]
    tallies = {(w.name, index): _Tally() for w in workloads for index in range(len(contestants))}
    steps = settings.rounds * len(workloads) * len(contestants)
    done = 0
    for number in range(1, settings.rounds + 1):
        for workload in workloads:
            progress.status(f"round {number}, floor")
            floor.outcomes.append(run(FLOOR_WORKLOAD, this, settings))
            for index, environment in list(enumerate(contestants))[:: 1 if number % 2 else -1]:
                done += 1
                place = f"[{done}/{steps}] round {number}, {workload.name}, {environment.label}"
                _one(
                    workload,
                    environment,
                    settings,
                    tallies[workload.name, index],
                    place,
                    progress,
                    run,
                )
    # dozens of samples: one hiccup is no reason to lose the column
    pooled = floor.side(strict=False)
    judged = settings.scale == 1 and other is not None and other.distribution == REFERENCE
    rows = []
    for workload in workloads:
        sides = [tallies[workload.name, index].side() for index in range(len(contestants))]
        rows.append(_row(workload, pooled, sides, judged))
    return pooled, tuple(rows)


def _one(
    workload: Workload,
    environment: Environment,
    settings: Settings,
    tally: _Tally,
    place: str,
    progress: Progress,
    run: Execute,
) -> None:
    if tally.failed:
        progress.say(f"{place}: left out, it failed before")
        return
    progress.status(place)
    outcome = run(workload, environment, settings)
    tally.outcomes.append(outcome)
    if outcome.error is None:
        progress.say(f"{place}: {outcome.value:.4g} {workload.unit}")
    else:
        progress.say(f"{place}: FAILED, {outcome.error}\n{outcome.output}")


def _row(workload: Workload, floor: Side, sides: Sequence[Side], judged: bool) -> Row:
    return Row(
        workload.name,
        workload.title,
        workload.unit,
        workload.better,
        floor_of(workload, floor, sides[0]),
        sides[0],
        sides[1] if len(sides) > 1 else None,
        judged,
    )


def _with_last_line(reason: str, err: str) -> str:
    lines = [line for line in err.strip().splitlines() if line.strip()]
    return scrub(f"{reason}: {lines[-1].strip()[:160]}") if lines else reason


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
