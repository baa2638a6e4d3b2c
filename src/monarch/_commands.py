"""Other programs that are run for what they print."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any


def run_caught(
    command: Sequence[str], seconds: float, said: str = "", **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program and catch what it prints, as text.

    Args:
        command: The program, and its arguments.
        seconds: In which it must end.
        said: What it reads from stdin.
        **options: Of `subprocess.run`.

    Raises:
        OSError: It can't be run.
        subprocess.TimeoutExpired: It has not ended in time, and was killed.
    """
    return subprocess.run(
        command, input=said, capture_output=True, text=True, errors="replace", timeout=seconds, check=False, **options
    )  # fmt: skip
