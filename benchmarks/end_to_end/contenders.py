"""What the rows share: contenders that take turns, each in a fresh process, and their numbers.

A row is a module of this package with a `ROW`. `python -m benchmarks.end_to_end.tasks --rounds 5`
runs one, from the repository's root, and `python -m benchmarks.end_to_end` all of them in turn. Who
is not installed is left out, and said; who fails is not asked again, and has a line that says so.
A contender with a `requirement` has an environment of its own, made by pip the first time.
`--json` and `--plot` keep what was found in `benchmarks/results/`, or where they say.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import environments, processes, targets
from benchmarks.catalog import Better
from benchmarks.machine import describe, scrub
from benchmarks.report import number, times
from benchmarks.targets import Target

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
OURS = "pymonarch"
DASK = "distributed==2026.8.0"  # needs what an environment with Ray may have in another version
_FOUND = "FOUND "
_LEAVE_S = 5.0  # how long what a contender started may outlive it


@dataclass(frozen=True)
class Contender:
    """`measure(**settings)` returns a number by quantity of its row; `needs` names modules that it
    imports.

    With a `requirement`, such as ``"distributed==2026.8.0"``, it runs in an environment that has
    that, and this package from its source.
    """

    measure: Callable[..., Mapping[str, float]]
    needs: tuple[str, ...] = ()
    requirement: str | None = None


@dataclass(frozen=True)
class Quantity:
    """A column of numbers.

    `targets` says of other contenders how many times better than them `OURS` is to be.
    """

    unit: str
    targets: Mapping[str, Target] = field(default_factory=dict)
    better: Better = "lower"


@dataclass(frozen=True)
class Row:
    """A piece of work.

    `name` is that of its module, and each of `settings` an option; a turn may last `limit` seconds.
    """

    name: str
    title: str
    contenders: Mapping[str, Contender]
    quantities: Mapping[str, Quantity]
    settings: Mapping[str, int] = field(default_factory=dict)
    limit: float = 300.0


@dataclass
class Found:
    """Of each contender a sample by round and quantity, or why there is none; of who was left out
    what it needs.
    """

    row: str
    settings: Mapping[str, int]
    machine: Mapping[str, float | str]
    versions: dict[str, str] = field(default_factory=dict)
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def samples(self, contender: str, quantity: str) -> list[float]:
        """Those of a contender that did not fail."""
        if contender in self.errors:
            return []
        return [each[quantity] for each in self.rounds.get(contender, []) if quantity in each]

    def times_better(self, other: str, name: str, quantity: Quantity) -> float | None:
        """How many times better the median of ours is, endless where ours is nothing at all."""
        ours, theirs = self.samples(OURS, name), self.samples(other, name)
        if not ours or not theirs or other == OURS:
            return None
        this, that = statistics.median(ours), statistics.median(theirs)
        if this == 0 and quantity.better == "lower":
            return math.inf if that else 1.0
        return targets.ratio(quantity.better, this, that)


def turn(row: Row, name: str, settings: Mapping[str, int]) -> dict[str, float]:
    """The numbers of one contender, from a process of its own, of which nothing is left running.

    Raises:
        RuntimeError: It failed, or did not end within the limit of the row.
    """
    requirement = row.contenders[name].requirement
    python = environments.ensure_venv(requirement, _say) if requirement else sys.executable
    command = [str(python), "-m", f"{__package__}.{row.name}", "--only", name]
    command += [part for key, value in settings.items() for part in (f"--{key}", str(value))]
    mark = processes.new_mark()
    paths = [str(ROOT), str(ROOT / "src")] if requirement else [str(ROOT)]
    environment = {**os.environ, processes.MARK: mark, "PYTHONPATH": os.pathsep.join(paths)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # nobody compiles a package at each start
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=ROOT, env=environment
        )
        try:
            status = f"exit status {process.wait(row.limit)}"
            processes.wait_until_gone(mark, _LEAVE_S)
        except subprocess.TimeoutExpired:
            status = f"no end within {row.limit:g} s"
        finally:
            processes.kill(mark)
            process.wait()
        out.seek(0)
        err.seek(0)
        lines = [line for line in out if line.startswith(_FOUND)]
        if status == "exit status 0" and lines:
            found: dict[str, float] = json.loads(lines[-1].removeprefix(_FOUND))
            return found
        said = err.read()
    sys.stderr.write(said)
    last = (said.strip() or "printed no result").splitlines()[-1]
    raise RuntimeError(scrub(f"{status}: {last[:200]}"))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _versions(contender: Contender) -> dict[str, str]:
    """What a contender runs with.

    Raises:
        ModuleNotFoundError: It names modules that are not installed.
        EnvironmentProblem: Its own environment can't be made.
    """
    if contender.requirement:
        environments.ensure_venv(contender.requirement, _say)
        distribution, _, version = contender.requirement.partition("==")
        return {distribution: version}
    absent = [module for module in contender.needs if importlib.util.find_spec(module) is None]
    if absent:
        raise ModuleNotFoundError(", ".join(absent))
    found = {}
    for module in contender.needs:
        with suppress(importlib.metadata.PackageNotFoundError):  # of the standard library
            found[module] = importlib.metadata.version(module)
    return found


def compare(
    row: Row, settings: Mapping[str, int], rounds: int, take: Callable[..., dict[str, float]] = turn
) -> Found:
    """All rounds, in every second one the contenders in reverse. `take` is the seam for tests."""
    found = Found(row.name, settings, describe())
    for name, contender in row.contenders.items():
        try:
            found.versions |= _versions(contender)
        except (ModuleNotFoundError, environments.EnvironmentProblem) as error:
            found.missing[name] = str(error)
            continue
        found.rounds[name] = []
    for index in range(rounds):
        for name in [*found.rounds][:: -1 if index % 2 else 1]:
            if name in found.errors:
                continue
            try:
                found.rounds[name].append(take(row, name, settings))
                told = ", ".join(
                    f"{key} {number(value)}" for key, value in found.rounds[name][-1].items()
                )
            except RuntimeError as error:
                found.errors[name] = told = str(error)
            _say(f"round {index + 1}, {name}: {told}")
    return found


def table(row: Row, found: Found) -> str:
    """As markdown: of each quantity a table of medians, what we promise beside others, and what
    came of it.
    """
    lines = []
    for title, quantity in row.quantities.items():
        best = "least" if quantity.better == "lower" else "most"
        lines.append(
            f"| {title}, {quantity.unit} | median | {best} "
            f"| {OURS} is better | must | should | verdict |"
        )
        lines += ["| --- | ---: | ---: | ---: | --- | --- | --- |"]
        for name in found.rounds:
            lines.append(f"| {' | '.join([name, *_cells(found, name, title, quantity)])} |")
        lines.append("")
    lines += [f"{name} failed: {error}" for name, error in found.errors.items()]
    lines += [
        f"{name} was left out, as it is not installed: {what}"
        for name, what in found.missing.items()
    ]
    return "\n".join(lines).strip()


def _cells(found: Found, name: str, title: str, quantity: Quantity) -> list[str]:
    samples = found.samples(name, title)
    if not samples:
        return ["failed" if name in found.errors else "-", *"-----"]
    best = min if quantity.better == "lower" else max
    ratio = found.times_better(name, title, quantity)
    told = "∞" if ratio == math.inf else times(ratio)
    cells = [number(statistics.median(samples)), number(best(samples)), told]
    if (target := quantity.targets.get(name)) is None:
        return [*cells, *"---"]
    ours = statistics.median(found.samples(OURS, title) or [math.nan])
    wanted = [times(target.must), targets.describe_should(target, quantity.unit) or "-"]
    return [*cells, *wanted, targets.verdict(target, ours, ratio, None)]


def save(found: Found, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(asdict(found), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def load(path: Path) -> Found:
    return Found(**json.loads(path.read_text(encoding="utf-8")))


def main(row: Row) -> None:
    """The program of a row."""
    parser = argparse.ArgumentParser(f"python -m {__package__}.{row.name}", description=row.title)
    parser.add_argument("--rounds", type=int, default=3)
    for key, value in row.settings.items():
        parser.add_argument(f"--{key}", type=int, default=value, help="default: %(default)s")
    kept = RESULTS / f"end_to_end_{row.name}"
    for kind, suffix in ("json", ".json"), ("plot", ".png"):
        where: dict[str, Any] = {"type": Path, "nargs": "?", "const": kept.with_suffix(suffix)}
        parser.add_argument(
            f"--{kind}", **where, help=f"keep it; without a path in {RESULTS.name}/"
        )
    parser.add_argument(
        "--from", dest="source", type=Path, help="show what such a JSON file has, measure nothing"
    )
    parser.add_argument("--only", choices=row.contenders, help=argparse.SUPPRESS)
    options = parser.parse_args()
    settings = {key: getattr(options, key) for key in row.settings}
    if min(options.rounds, *settings.values(), 1) < 1:
        parser.error(f"rounds and settings are at least 1, got {options.rounds} and {settings}")
    if options.only:
        print(_FOUND + json.dumps(row.contenders[options.only].measure(**settings)))
        return
    found = load(options.source) if options.source else compare(row, settings, options.rounds)
    told = "".join(f", {value:,} {key}" for key, value in found.settings.items())
    print(
        f"{row.title}{told}\nmedians of {len(found.rounds.get(OURS, []))} rounds,"
        f" {found.machine['cores']} cores,"
    )
    print(f"load before: {found.machine['load_before']}\n\n{table(row, found)}\n")
    if options.json:
        save(found, options.json)
    if options.plot:
        from benchmarks.end_to_end.plot import draw

        draw(row, found, options.plot)
    sys.exit(OURS in found.errors)
