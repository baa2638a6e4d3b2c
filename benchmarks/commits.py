"""Commits of this repository as environments: each is checked out into a temporary folder while it
is measured.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.environments import REPOSITORY, Environment, EnvironmentProblem, checkout


@contextmanager
def checked_out(
    revisions: Sequence[str], repository: Path = REPOSITORY
) -> Iterator[list[Environment]]:
    """This interpreter with the `monarch` of each revision, anything that git can name; the folders
    go with the context.

    Raises:
        EnvironmentProblem: Git knows no such commit, or it has no package.
    """
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        trees: list[Path] = []
        try:
            found = []
            for revision in revisions:
                commit = _git(
                    repository,
                    "rev-parse",
                    "--verify",
                    "--end-of-options",
                    f"{revision}^{{commit}}",
                )
                tree = Path(folder) / str(len(trees))
                _git(repository, "worktree", "add", "--quiet", "--detach", str(tree), commit)
                trees.append(tree)
                name = revision if commit.startswith(revision) else f"{revision} ({commit[:9]})"
                found.append(replace(checkout(tree), label=name))
            yield found
        finally:
            for tree in trees:
                _git(repository, "worktree", "remove", "--force", str(tree))


def working_tree() -> Environment:
    """This interpreter with the `monarch` of this checkout, committed or not."""
    return replace(checkout(REPOSITORY), label="working tree")


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(repository), *arguments], capture_output=True, text=True, timeout=120
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise EnvironmentProblem(f"git {arguments[0]} does not run: {problem}") from problem
    if done.returncode:
        raise EnvironmentProblem(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
