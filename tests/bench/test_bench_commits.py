"""Commits as environments, in a repository made for the test."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.commits import checked_out
from benchmarks.environments import EnvironmentProblem


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    package = tmp_path / "src" / "monarch"
    package.mkdir(parents=True)
    git(tmp_path, "init", "--quiet", "--initial-branch", "main")
    for version in ("old", "new"):
        (package / "__init__.py").write_text(f"VERSION = {version!r}\n")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "--quiet", "--message", version)
        git(tmp_path, "tag", version)
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    identity = [
        "-c",
        "user.name=Somebody",
        "-c",
        "user.email=somebody@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    return subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def test_each_commit_has_the_package_as_it_was_and_nothing_stays(repository: Path) -> None:
    with checked_out(["old", "new"], repository) as found:
        for environment, version in zip(found, ("old", "new"), strict=True):
            code = "import monarch; print(monarch.VERSION)"
            command = [str(environment.python), "-c", code]
            shown = subprocess.run(
                command, env=environment.process_environment(), capture_output=True, text=True
            )
            assert shown.stdout == f"{version}\n", shown.stderr
            assert environment.label.startswith(version)
        assert len(git(repository, "worktree", "list").splitlines()) == 3
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_commit_that_git_does_not_know_is_a_problem_and_nothing_stays(repository: Path) -> None:
    with (
        pytest.raises(EnvironmentProblem, match="nowhere"),
        checked_out(["old", "nowhere"], repository),
    ):
        pytest.fail("there is no such commit")
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "compare" in capsys.readouterr().out
