"""Runs of pytest within a test, with no plugins but those that are asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_pytest(
    folder: Path, conftest: str, tests: str, settings: str, *options: str
) -> tuple[int, str]:
    """Run tests in a new folder; return the exit status, and what was said.

    Args:
        folder: Where the files are written.
        conftest: The text of ``conftest.py``.
        tests: That of ``test_some.py``.
        settings: Those of ``pytest.ini``.
        options: On the command line.
    """
    folder.joinpath("conftest.py").write_text(conftest)
    folder.joinpath("test_some.py").write_text(tests)
    folder.joinpath("pytest.ini").write_text(f"[pytest]\n{settings}\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout
