"""The environments compared: this one, another interpreter, a venv made for a pip requirement,
another checkout.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
DEFAULT_AGAINST = "torchmonarch==0.7.0"
# looser in its own metadata; a newer torch would be another test
FIRST_INSTALL = {"torchmonarch": "torch==2.13.0"}
DISTRIBUTIONS = ("pymonarch", "torchmonarch")

# nobody compiles a package at each start
_AS_INSTALLED = {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": None}

PROBE = f"""
import compileall, importlib.metadata as metadata, importlib.util as util, json, os, platform
import monarch
compileall.compile_dir(os.path.dirname(monarch.__file__), quiet=2)  # as pip does when it installs
found = {{}}
for name in {DISTRIBUTIONS!r}:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
payloads = [name for name in ("torch", "numpy") if util.find_spec(name)]
print(json.dumps([found, monarch.__file__, payloads, platform.python_version()]))
"""


class EnvironmentProblem(Exception):
    """An environment can't be made or has no usable `monarch`."""


@dataclass(frozen=True)
class Environment:
    """A Python that has a `monarch`, and what to change in the process environment when it runs.

    `variables` maps a name to its value, or to None for "remove it". `payloads` are the array
    libraries it can import.
    """

    label: str
    python: Path
    distribution: str
    variables: Mapping[str, str | None] = field(default_factory=dict)
    payloads: tuple[str, ...] = ()

    def process_environment(self) -> dict[str, str]:
        merged: dict[str, str | None] = {**os.environ, **_AS_INSTALLED, **self.variables}
        return {name: value for name, value in merged.items() if value is not None}


def this_environment() -> Environment:
    """The environment that runs the benchmarks.

    A `monarch` that can't be imported shows as failing rows, not here.
    """
    try:
        return probe(Path(sys.executable), {}, None)
    except EnvironmentProblem:
        return Environment("this (not importable)", Path(sys.executable), "?")


def against(what: str, say: Callable[[str], None]) -> Environment:
    """The environment that `--against` names: an interpreter, a venv's folder, or a pip
    requirement.
    """
    path = Path(what).expanduser()
    if path.is_dir():
        path = path / "bin" / "python"
    if path.is_file():
        # absolute, not resolved: a venv's python is a link
        return probe(path.absolute(), {"PYTHONPATH": None}, None)
    if "/" in what:
        raise EnvironmentProblem(f"--against {what}: there is no such interpreter or environment")
    return probe(ensure_venv(what, say), {"PYTHONPATH": None}, None)


def checkout(source: Path) -> Environment:
    """This interpreter with the `monarch` of another checkout (its root or its `src`)."""
    source = source.expanduser().resolve()
    root = source / "src" if (source / "src" / "monarch").is_dir() else source
    if not (root / "monarch").is_dir():
        raise EnvironmentProblem(f"--baseline-src {source}: no monarch package there or in its src")
    return probe(Path(sys.executable), {"PYTHONPATH": str(root)}, root)


def probe(python: Path, variables: Mapping[str, str | None], root: Path | None) -> Environment:
    """Ask an interpreter which `monarch` it has. With `root`, insist that it comes from there."""
    bare = Environment("?", python, "?", variables)
    command = [str(python), "-c", PROBE]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            env=bare.process_environment(),
            cwd=REPOSITORY,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise EnvironmentProblem(f"{python} does not run: {problem}") from problem
    if done.returncode:
        raise EnvironmentProblem(f"{python} can't import monarch:\n{done.stderr.strip()}")
    versions, file, payloads, version = json.loads(done.stdout.splitlines()[-1])
    if root is not None and not Path(file).is_relative_to(root):
        raise EnvironmentProblem(f"wanted the monarch of {root}, got {file}")
    name = "pymonarch" if root is not None else next(iter(versions), "monarch")
    label = (
        f"{name} {'baseline' if root is not None else versions.get(name, '?')}, Python {version}"
    )
    return Environment(label, python, name, variables, tuple(payloads))


def ensure_venv(requirement: str, say: Callable[[str], None]) -> Path:
    """The interpreter of a venv with `requirement`, made on first use in the repository's root and
    kept.

    Pip's usual variables (PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, ...) choose where it downloads from.
    """
    folder = REPOSITORY / f".venv-{re.sub(r'[^A-Za-z0-9.]+', '-', requirement).strip('-')}"
    python, complete = folder / "bin" / "python", folder / ".complete"
    if complete.is_file() and python.is_file():
        return python
    say(f"making {folder.name} with {requirement}; it is kept for the next run")
    first = FIRST_INSTALL.get(re.split(r"[^A-Za-z0-9_-]", requirement, maxsplit=1)[0])
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    steps = [[sys.executable, "-m", "venv", "--clear", str(folder)]]
    steps += [[*pip, wanted] for wanted in (first, requirement) if wanted]
    for step in steps:
        say(f"$ {' '.join(Path(part).name if part.startswith('/') else part for part in step)}")
        if subprocess.run(step, stdout=sys.stderr).returncode:  # pip draws its own progress there
            raise EnvironmentProblem(f"making {folder.name} failed at: {' '.join(step[-2:])}")
    complete.touch()
    return python


def common_payload(environments: list[Environment]) -> str:
    """The best type for large arguments that all environments have."""
    shared = [
        kind for kind in ("torch", "numpy") if all(kind in each.payloads for each in environments)
    ]
    return shared[0] if shared else "bytes"
