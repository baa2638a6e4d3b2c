"""Python environments of hosts."""

from __future__ import annotations

from pathlib import Path

from ..utils import conda


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
        found = conda_prefix or conda.active_env_dir()
        if not found:
            raise RuntimeError("no conda environment is active: activate one, or give its folder")
        self.conda_prefix = Path(found).expanduser().absolute()
        if not self.conda_prefix.is_dir():
            raise NotADirectoryError(f"{str(found)!r} is no conda environment: there is no such folder")

    def __repr__(self) -> str:
        return f"CondaEnvironment({str(self.conda_prefix)!r})"
