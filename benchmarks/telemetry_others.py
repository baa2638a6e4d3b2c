"""What telemetry costs beside others:
`python -m benchmarks.telemetry_others --ray PYTHON --monarch PYTHON`, from the repository's root.

Each program has an actor in each of some processes of this machine, calls one of them, and asks
which actors there are and how often each endpoint was called: once with telemetry, once without.
The programs take turns. An interpreter that is not named is left out; Ray's needs `ray[default]`,
that of Monarch `torchmonarch==0.7.0` and torch, this one the extra `telemetry`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

WORKLOADS = Path(__file__).parent / "workloads"
COLUMNS = {
    "call_us": "call, µs",
    "actors_ms": "which actors, ms",
    "calls_ms": "calls by endpoint, ms",
}
_PATIENCE = 300.0  # seconds for a program


def run(python: str, script: str, arguments: list[str]) -> dict[str, float]:
    """What a program has found, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "HOME": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody compiles a package at each start
        done = subprocess.run(
            [python, str(WORKLOADS / script), *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
        )
    for line in done.stdout.splitlines():
        if line.startswith("FOUND "):
            found: dict[str, float] = json.loads(line.removeprefix("FOUND "))
            return found
    raise RuntimeError(f"{python} {script} ended with {done.returncode}: {done.stderr[-2000:]}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ray", help="a Python that has ray")
    parser.add_argument("--monarch", help="a Python that has torchmonarch")
    parser.add_argument("--procs", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--questions", type=int, default=15)
    options = parser.parse_args()
    pythons = [
        ("pymonarch", sys.executable, "_telemetry_monarch.py"),
        ("Monarch 0.7.0", options.monarch, "_telemetry_monarch.py"),
        ("Ray", options.ray, "_telemetry_ray.py"),
    ]
    taken: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(options.rounds):
        for name, python, script in pythons:
            for mode in ("off", "on") if python else ():
                found = run(
                    python,
                    script,
                    [str(options.procs), mode, str(options.calls), str(options.questions)],
                )
                for column, value in found.items():
                    taken[name, mode][column].append(value)
    print(f"{options.procs} processes, medians of {options.rounds} rounds\n")
    print(
        "| | telemetry |", " | ".join(COLUMNS.values()), "|\n| --- | --- |", " --- |" * len(COLUMNS)
    )
    for (name, mode), columns in taken.items():
        cells = [
            f"{statistics.median(columns[each]):.1f}" if each in columns else "-"
            for each in COLUMNS
        ]
        print(f"| {name} | {mode} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
