"""Which files a plain run leaves out, and that no test is lost by that."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gate import choice
from helpers.each import for_each

LOCAL = "def test_a_call(spawn: Spawn) -> None: ...\n"
PROGRAM = "def test_a_program(tmp_path: Path) -> None:\n    procs.spawn('a', A)\n"


@for_each(
    "text, only_on_processes",
    [
        (PROGRAM, True),
        (LOCAL, False),
        ("@pytest.fixture\ndef mine(pair: ProcMesh) -> None: ...\n", False),
        ('@pytest.mark.usefixtures("far_hosts")\n' + PROGRAM, False),
        (f'pytestmark = pytest.mark.processes("they are killed")\n{LOCAL}', True),
        (f'pytestmark = [pytest.mark.torch, pytest.mark.processes("killed")]\n{LOCAL}', True),
        (
            f"pytestmark = [\n    pytest.mark.torch,  # a comment\n    pytest.mark.slow,\n]\n{LOCAL}",
            True,
        ),
        (f"pytestmark = pytest.mark.both\n{LOCAL}", False),
        (f"pytestmark = [\n    pytest.mark.torch,\n]\n@pytest.mark.slow\n{LOCAL}", False),
        (f'@pytest.mark.processes("they are killed")\n{LOCAL}', False),
    ],
)
def test_a_file_in_which_all_tests_are_on_processes_is_known_by_its_text(
    text: str, only_on_processes: bool
) -> None:
    assert choice.only_on_processes(text) == only_on_processes


def test_a_quarter_of_the_files_is_left_out_and_none_that_holds_a_promise() -> None:
    files = sorted(choice.TESTS_FOLDER.rglob("*.py"))
    left_out = {
        path.relative_to(choice.TESTS_FOLDER).as_posix()
        for path in files
        if choice.has_nothing_by_default(path)
    }
    assert 100 < len(left_out) < len(files) / 2
    assert {"browser/test_pictures.py", "procs/test_slurm_job.py"} <= left_out
    assert left_out.isdisjoint({"conftest.py", "helpers/actors.py", "pure/test_choice.py"})
    assert {f"tests/{name}" for name in left_out}.isdisjoint(choice.PROMISED_FILES)


def item(path: str, *marks: str) -> Any:
    """What `mark` looks at of a test."""
    have = [*marks]
    return SimpleNamespace(
        nodeid=f"tests/{path}::test_some",
        path=choice.TESTS_FOLDER / path,
        get_closest_marker=lambda name: name if name in have else None,
        add_marker=have.append,
    )


LEFT_OUT = "procs/test_slurm_job.py"


@pytest.mark.parametrize("tests", [(item(LEFT_OUT), True), (item(LEFT_OUT, "slow"), False)])
def test_process_tests_and_slow_ones_may_be_left_out(tests: tuple[Any, bool]) -> None:
    one, on_processes = tests
    choice.mark([one], lambda _: on_processes)


def test_a_test_that_would_be_lost_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="a plain run would not find it"):
        choice.mark([item(LEFT_OUT)], lambda _: False)
    choice.mark([item("procs/test_calls.py")], lambda _: False)


def test_who_names_files_or_wants_all_has_each_file() -> None:
    path = choice.TESTS_FOLDER / LEFT_OUT
    pure = path.parent.parent / "pure"
    for chosen, rest, files, folders in (
        (choice.BY_DEFAULT, False, True, False),
        ("", False, False, False),
        ("slow", False, False, False),
        (f"not ({choice.BY_DEFAULT})", True, False, True),
    ):
        config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=chosen, rest=rest))
        assert choice.is_ignored(config, path) == files, chosen
        assert choice.is_ignored(config, pure) == folders, chosen
        assert not choice.is_ignored(config, Path(choice.TESTS_FOLDER, "pure", "test_choice.py"))
