"""Tests under another Python or torch: `python -m tests.other_versions --python 3.13`.

Makes an environment in `build/versions`, or takes the one that is there, with what the extra `test`
asks for but torch and what takes hundreds of megabytes; `--torch 2.14.1` brings that torch. Runs the
steps one after the other, each in a process of its own, and prints a table of them; the output of a
step that fails is kept beside the environment. CI does not run it: it takes an interpreter and
downloads that CI's machine need not have.

Without torch the steps are: imports, the smallest program, the names of 0.7, and the tests of
`tests/api`, `tests/pure` and `tests/procs` that a plain `pytest` runs and that need no torch. With it
they are those of tensors, RDMA, SPMD and elastic training, and examples. `--light` leaves out tests
that start processes, `--only` takes some steps, `--tests` some files in place of them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))  # as pytest has it

from trust import ROOT, one_run

ENVIRONMENTS = ROOT / "build" / "versions"
LEFT_OUT = ("mypy", "nixl", "playwright", "ray", "ruff", "torch")  # of the extra `test`
CHOICE = {
    False: "(promise or not (process or slow))",  # as a plain pytest, also for named folders
    True: "not (process or slow)",
}
_ENDS = re.compile(
    r"^=* ?(\d+ (?:passed|failed|error|skipped)\b.*?)(?: in [\d.]+s.*)?$", re.MULTILINE
)
_NONE_CHOSEN = 5  # exit status of pytest
_COUNTS = re.compile(r"(\d+) (passed|failed|error|skipped)")


class Step(NamedTuple):
    """One row of the table: what the interpreter is told, or which tests pytest runs."""

    name: str
    command: Sequence[str] = ()
    tests: Sequence[str] = ()  # files and folders
    such: str = ""  # as `-k` of pytest


BEGINNING = (
    Step("import", ("-c", "import monarch.actor, monarch.job, monarch.tools.cli")),
    Step("smallest program", ("docs/examples/smallest.py",)),
    Step("names of 0.7", tests=["tests/api/test_names_of_0_7.py"], such="one_program"),
)
WITHOUT_TORCH = tuple(Step(tests, tests=[f"tests/{tests}"]) for tests in ("api", "pure", "procs"))
WITH_TORCH = (
    Step("tensors", tests=["tests/procs/test_tensor*.py", "tests/pure/test_tensor*.py"]),
    Step("rdma", tests=["tests/procs/test_rdma*.py", "tests/pure/test_rdma*.py"]),
    Step("spmd", tests=["tests/procs/test_spmd*.py", "tests/procs/test_run*.py"]),
    Step("elastic", tests=["tests/faults/test_elastic*.py", "tests/pure/test_elastic*.py"]),
    *(
        Step(f"examples/{name}.py", (f"examples/{name}.py",))
        for name in ("quickstart", "ddp", "tensor_parallel", "small_transformer", "elastic_ddp")
    ),
)


class Row(NamedTuple):
    step: str
    outcome: str
    seconds: float
    failed: bool


def interpreter(version: str) -> str:
    """Find the program of a Python: ``3.13``, ``3.13.0`` or a path.

    Raises:
        SystemExit: There is none of that version on `PATH`, nor with pyenv.
    """
    if os.sep in version:
        return version
    places = [f"python{'.'.join(version.split('.')[:2])}"]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    # pyenv's stand-ins on PATH refuse versions that are not the chosen one
    places[:0] = [str(each / "bin" / "python") for each in sorted(pyenv.glob(f"{version}*"))]
    for place in places:
        found = shutil.which(place)
        if found and says(found, "import sys; print(sys.version)").startswith(version):
            return found
    raise SystemExit(f"no Python {version}: looked for {', '.join(places)}")


def says(python: str, program: str) -> str:
    return subprocess.run(
        [python, "-c", program], capture_output=True, text=True, check=False
    ).stdout.strip()


def requirements(torch: str | None) -> Iterator[str]:
    """What the extra `test` names, without `LEFT_OUT`."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for needed in project["optional-dependencies"]["test"]:
        if re.split(r"[^\w-]", needed, maxsplit=1)[0] not in LEFT_OUT:
            yield needed
    if torch:
        yield f"torch=={torch}"


def environment(python: str, torch: str | None) -> Path:
    """Make the environment, unless it is there; its interpreter."""
    version = says(python, "import platform; print(platform.python_version())")
    place = ENVIRONMENTS / (f"python{version}" + (f"-torch{torch}" if torch else ""))
    inside, ready = place / "bin" / "python", place / "ready"
    if not ready.exists():
        print(f"making {place}", flush=True)
        subprocess.run([python, "-m", "venv", str(place)], check=True)
        pip = [str(inside), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, "-e", str(ROOT), *requirements(torch)], check=True)
        ready.touch()
    return inside


def arguments(step: Step, light: bool, workers: int) -> list[str]:
    if not step.tests:
        return [*step.command]
    files = [str(file) for tests in step.tests for file in sorted(ROOT.glob(tests))]
    if not files:
        raise SystemExit(f"no such tests: {' '.join(step.tests)}")
    choice = ["-k", step.such] if step.such else ["-m", CHOICE[light]]
    return ["-m", "pytest", "-q", "-n", str(workers), "--dist", "loadfile", *choice, *files]


def outcome_of(step: Step, status: int, said: str) -> str:
    """A few words about how a step ended; pytest's last line where it ran."""
    ends = _ENDS.findall(said) if step.tests else []
    if ends:
        return ", ".join(f"{number} {kind}" for number, kind in _COUNTS.findall(ends[-1]))
    if step.tests and status == _NONE_CHOSEN:
        return "no such test"
    return "passed" if status == 0 else f"failed, exit status {status}"


def run(step: Step, python: Path, light: bool, workers: int) -> Row:
    status, seconds, said = one_run([str(python), *arguments(step, light, workers)])
    outcome = outcome_of(step, status, said)
    failed = status not in (0, _NONE_CHOSEN if step.tests else 0)
    if failed:
        log = python.parents[1] / f"{step.name.replace('/', '_').replace(' ', '_')}.log"
        log.write_text(said)
        outcome += f" ({log.relative_to(ROOT)})"
    row = Row(step.name, outcome, seconds, failed)
    print(f"{row.step}: {row.outcome}, {row.seconds:.0f} s", flush=True)
    return row


def table(title: str, rows: Sequence[Row]) -> str:
    lines = [f"| {title} | outcome | s |", "| --- | --- | --- |"]
    return "\n".join(
        [*lines, *(f"| {row.step} | {row.outcome} | {row.seconds:.0f} |" for row in rows)]
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.other_versions", description=__doc__)
    this = ".".join(map(str, sys.version_info[:2]))
    parser.add_argument("--python", default=this, help=f"a version, or a path; default: {this}")
    parser.add_argument("--torch", help="its version; default: none is installed")
    parser.add_argument("--light", action="store_true", help="no tests that start processes")
    parser.add_argument("--only", nargs="+", metavar="STEP", help="the names of some steps")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="these, in place of steps")
    parser.add_argument("--workers", type=int, default=2, help="of pytest; default: 2")
    given = parser.parse_args(argv)
    steps = BEGINNING + (WITH_TORCH if given.torch else WITHOUT_TORCH)
    if given.tests:
        steps = tuple(Step(tests, tests=[tests]) for tests in given.tests)
    names = [step.name for step in steps]
    unknown = set(given.only or ()).difference(names)
    if unknown:
        parser.error(f"no such steps: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if given.light and not given.torch and not given.tests:
        steps = steps[:-1]
    python = environment(interpreter(given.python), given.torch)
    chosen = [step for step in steps if step.name in (given.only or names)]
    rows = [run(step, python, given.light, given.workers) for step in chosen]
    version = says(str(python), "import platform; print(platform.python_version())")
    with_torch = f", torch {given.torch}" if given.torch else ", no torch"
    print(table(f"Python {version}{with_torch}", rows))
    return int(any(row.failed for row in rows))


if __name__ == "__main__":
    sys.exit(main())
