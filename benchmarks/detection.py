"""How long until a waiting caller is told of a death: `python -m benchmarks.detection`, from the
repository's root.

Each event in a fresh program, the environments in turn; the table shows median and worst. Not among
the workloads: with events that are polled for, or waited out, the medians are settings rather than
speeds, and a ratio of them says little.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys

from benchmarks import environments, processes, report
from benchmarks.environments import Environment, EnvironmentProblem
from benchmarks.progress import Progress

EVENTS = (
    ("proc", "SIGKILL"),
    ("proc", "SIGSEGV"),
    ("proc", "exit"),
    ("proc", "SIGSTOP"),
    ("spawner", "SIGKILL"),
    ("spawner", "SIGSTOP"),
    ("agent", "SIGKILL"),
    ("agent", "SIGSTOP"),
)
START_S = 60.0  # for a program to start its procs, on top of the limit
# before the event: who polls, be it every 10 s, is not always met at the same moment of his round
PAUSE_S = (
    0.5,
    10.5,
)
SLOW = "SIGSTOP"  # waits out a time-out, which hardly varies: measured once

progress = Progress()


def once(
    environment: Environment, who: str, how: str, pause: float, limit: float
) -> float | str | None:
    """Seconds; None where there is no such process; otherwise what went wrong."""
    mark = processes.new_mark()
    command = [
        str(environment.python),
        "-m",
        "benchmarks.workloads._detection",
        who,
        how,
        str(pause),
        str(limit),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=pause + limit + START_S,
            text=True,
            cwd=environments.REPOSITORY,
            env={**environment.process_environment(), processes.MARK: mark},
            start_new_session=True,
        )
        told: float | str | None = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return "no end"
    except (IndexError, ValueError):
        return "failed"
    finally:
        processes.kill(mark)
    return f"> {limit:g} s" if told == "late" else told


def cell(results: list[float | str | None]) -> list[str]:
    """Median and worst of the rounds; what went wrong in any of them instead."""
    seconds = [result for result in results if isinstance(result, float)]
    others = [result for result in results if isinstance(result, str)]
    if others:
        return [others[0], ""]
    if not seconds:
        return ["-", ""]
    return [show(statistics.median(seconds)), show(max(seconds)) if len(seconds) > 1 else ""]


def show(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.detection", description="Measure detection times."
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help=f"deaths per event; {SLOW} is measured once"
    )
    parser.add_argument("--limit", type=float, default=60.0, help="seconds to wait to be told")
    parser.add_argument(
        "--against",
        default=environments.DEFAULT_AGAINST,
        metavar="PYTHON_OR_SPEC",
        help=f"as of `python -m benchmarks run` (default {environments.DEFAULT_AGAINST})",
    )
    options = parser.parse_args(arguments)
    contestants = [environments.this_environment()]
    if options.against != "none":
        try:
            contestants.append(environments.against(options.against, progress.say))
        except EnvironmentProblem as problem:
            progress.say(f"benchmarks.detection: {problem}")
            return 2
    rows = [["process", "event", *(text for each in contestants for text in (each.label, "worst"))]]
    for who, how in EVENTS:
        results: list[list[float | str | None]] = [[] for _ in contestants]
        for number in range(1 if how == SLOW else options.rounds):
            pause = random.uniform(*PAUSE_S)
            for environment, sofar in zip(contestants, results, strict=True):
                progress.status(f"{who}, {how}, round {number + 1}, {environment.label}")
                sofar.append(once(environment, who, how, pause, options.limit))
        rows.append([who, how, *(text for each in results for text in cell(each))])
        progress.say("  ".join(rows[-1]))
    print(report.align(rows, right=set(range(2, len(rows[0])))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
