"""Conda environments: what the active one consists of, for hosts that make the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .._commands import run_caught
from ..errors import EnvironmentFailed

_LIMIT = 120.0  # seconds


class CondaEnvironment:
    """A conda environment of this machine.

    Args:
        conda_prefix: Its folder; by default the active one.

    Attributes:
        conda_prefix: The same, made absolute.

    Raises:
        NotADirectoryError: There is no such folder.
        RuntimeError: None is given, and none is active.
    """

    def __init__(self, conda_prefix: str | Path | None = None) -> None:
        found = conda_prefix or os.environ.get("CONDA_PREFIX")
        if not found:
            raise RuntimeError("no conda environment is active: activate one, or give its folder")
        self.conda_prefix = Path(found).expanduser().absolute()
        if not self.conda_prefix.is_dir():
            raise NotADirectoryError(
                f"{str(found)!r} is no conda environment: there is no such folder"
            )

    def export(self) -> str:
        """Return the packages as an ``environment.yml`` without its name and folder.

        Raises:
            EnvironmentFailed: Conda is not there, or fails.
        """
        command = ["conda", "env", "export", "--prefix", str(self.conda_prefix)]
        try:
            done = run_caught(command, _LIMIT)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EnvironmentFailed(
                f"conda can't be asked what {self.conda_prefix} consists of: {error}"
            ) from None
        if done.returncode:
            raise EnvironmentFailed(
                f"conda env export ended with status {done.returncode}: {done.stderr.strip()}"
            )
        lines = [
            line for line in done.stdout.splitlines() if not line.startswith(("name:", "prefix:"))
        ]
        return "\n".join([*lines, ""])

    def __repr__(self) -> str:
        return f"CondaEnvironment({str(self.conda_prefix)!r})"
