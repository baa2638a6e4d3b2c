"""The additions that CONTRIBUTING.md shows, each made on a copy of the tree, in its files only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.processes("runs checks and programs of a changed copy of the tree"),
    pytest.mark.timeout(600),
]

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "docs", "dashboard", "CONTRIBUTING.md", "CHANGELOG.md", "README.md", "pyproject.toml")  # fmt: skip
CHECKS = [
    f"tests/api/test_{name}.py"
    for name in ("docstrings", "exports", "files", "layering", "packages", "public_names")
]
# The size of the whole is a decision of its own.
COMMAND = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not growth_is_a_decision"]  # fmt: skip
MOST_FILES = {"an adverb": 5, "a kind of job": 4, "a page of the dashboard": 1}


def files_for(addition: str) -> list[str]:
    """The files that CONTRIBUTING.md names for it."""
    found, current = [], ""
    for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines():
        if match := re.match(r"\| ([^|]*?) ?\| `([^`]+)` \|", line):
            current = match[1] or current
            if current == addition:
                found.append(match[2])
    return found


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for name in COPIED:
        if (ROOT / name).is_dir():
            leave = shutil.ignore_patterns("__pycache__", "node_modules", "images")
            shutil.copytree(ROOT / name, tmp_path / name, ignore=leave)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def add(copy: Path, addition: str, name: str, changes: dict[str, Callable[[str], str]]) -> None:
    """Change or write the files, which are exactly those that CONTRIBUTING.md names."""
    named = files_for(addition)
    assert list(changes) == named and 0 < len(named) <= MOST_FILES[addition]
    for path, change in changes.items():
        file = copy / path.replace("NAME", name)
        before = file.read_text() if file.exists() else ""
        after = change(before)
        assert after != before, f"{path} is no longer as this test expects it"
        file.write_text(after)


def check(copy: Path, test: str) -> None:
    """Run the new test, and the checks of each change."""
    result = subprocess.run(
        [*COMMAND, test, *CHECKS],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    assert "no tests ran" not in result.stdout


def row_after(row: str, new: str) -> Callable[[str], str]:
    """Put a row behind the one that begins so."""
    return lambda text: re.sub(
        rf"^({re.escape(row)}.*\n)", lambda found: found[1] + new + "\n", text, count=1, flags=re.M
    )


ADVERB = '''
    def first(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call the first rank; a future of its result.

        Args:
            *args: Arguments of the endpoint.
            **kwargs: As `args`.

        Raises:
            TypeError, ValueError, BackpressureError, Exception: As for `call`.
        """
        target, cell = self._target, context()._cell
        self._check(args, kwargs)
        frame = _getframe(1)
        request = UnaryCall(
            self.name, target.uid, target.procs[0], cell.hub, (frame.f_code, frame.f_lineno)
        )
        content = self._pickle(args, kwargs, [0])
        request.number = target.cast(
            self._meta, content, request, [0], flags=self._flags, sender=cell
        )
        return request.future

    def choose('''
TEST_OF_ADVERB = """
from typing import Any

import pytest
from helpers.actors import Counter, Echo

from monarch._core.actors.endpoint import ADVERBS


def test_the_first_rank_answers(spawn: Any) -> None:
    counters = spawn(3).spawn("counters", Counter)
    assert counters.add.first(5).get() == 5
    assert counters.get.call().get().values() == [5, 0, 0]
    with pytest.raises(TypeError):
        counters.add.first(1, too=2)


def test_it_is_known_as_an_adverb() -> None:
    assert "first" in ADVERBS
    with pytest.raises(TypeError, match="first is for a spawned mesh"):
        Echo.say.first()
"""


def test_a_new_adverb_touches_at_most_five_files(copy: Path) -> None:
    add(
        copy,
        "an adverb",
        "first",
        {
            "src/monarch/_core/actors/adverbs.py": lambda text: text.replace(
                "\n    def choose(", ADVERB, 1
            ),
            "docs/guide.md": row_after("| `choose` |", "| `first` | rank 0 | a future | raises |"),
            "tests/procs/test_NAME.py": lambda _: TEST_OF_ADVERB,
            "CHANGELOG.md": row_after("- Actors on meshes", "- `first`, which calls rank 0."),
        },
    )
    check(copy, "tests/procs/test_first.py")


JOB = '''"""`RackJob`: machines of a rack, as worker processes in this example."""

from __future__ import annotations

from .process import ProcessJob
from .base.state import JobState
from .base.trait import JobTrait


class RackJob(JobTrait):
    """The machines of a rack.

    Args:
        size: How many machines.
    """

    def __init__(self, size: int) -> None:
        self._machines = ProcessJob({"rack": size})

    def _create(self, client_script: str | None) -> None:
        pass

    def _state(self) -> JobState:
        return JobState({"rack": self._machines.state(cached_path=None).rack})

    def can_run(self, spec: JobTrait) -> bool:
        """False: machines are not found again."""
        return False

    def _kill(self) -> None:
        self._machines.kill()
'''
TEST_OF_JOB = """
import pytest
from helpers.actors import Echo

from monarch.job import RackJob

pytestmark = pytest.mark.processes("workers are processes")


def test_its_machines_run_actors() -> None:
    job = RackJob(2)
    rack = job.state(cached_path=None).rack
    assert rack.size() == 2
    echo = rack.spawn_procs({"gpus": 1}).spawn("echo", Echo)
    assert echo.say.call("hello").get().values() == ["hello", "hello"]
    job.kill()
"""


def names_of_job(text: str) -> str:
    for before, new in (
        ("    from .ray.job import RayJob\n", "    from .rack import RackJob\n"),
        ('        "ray.job": ("RayJob",),\n', '        "rack": ("RackJob",),\n'),
    ):
        assert before in text
        text = text.replace(before, new + before, 1)
    return text.replace('"RayJob", ', '"RackJob", "RayJob", ', 1)


def test_a_new_kind_of_job_touches_at_most_four_files(copy: Path) -> None:
    add(
        copy,
        "a kind of job",
        "rack",
        {
            "src/monarch/job/NAME.py": lambda _: JOB,
            "src/monarch/job/__init__.py": names_of_job,
            "docs/jobs.md": row_after("| `ProcessJob(", "| `RackJob(2)` | a rack | ends |"),
            "tests/procs/test_NAME.py": lambda _: TEST_OF_JOB,
        },
    )
    check(copy, "tests/procs/test_rack.py")


def test_a_new_page_of_the_dashboard_is_one_file(copy: Path) -> None:
    modules = ROOT / "dashboard" / "web" / "node_modules"
    if shutil.which("node") is None or not modules.is_dir():
        pytest.skip("needs node, and `npm ci` in dashboard/web")
    (copy / "dashboard/web/node_modules").symlink_to(modules)
    path = "dashboard/web/src/pages/NAME.svelte"
    page = (copy / path.replace("NAME", "Hosts")).read_text()
    add(copy, "a page of the dashboard", "Racks", {path: lambda _: renamed(page)})
    built = copy / "built"
    command = ["node", "build.mjs", str(built)]
    subprocess.run(command, cwd=copy / "dashboard/web", check=True, capture_output=True)
    assert '"racks"' in (built / "app.js").read_text()


def renamed(page: str) -> str:
    return page.replace('path: "hosts", title: "Hosts"', 'path: "racks", title: "Racks"')
