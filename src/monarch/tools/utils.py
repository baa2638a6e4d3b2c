"""The folders in which Monarch 0.7 keeps files of a user, and the conda environment at hand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def MONARCH_HOME(*subpaths: str) -> Path:  # noqa: N802  # its name in the API
    """A path below ``$MONARCH_HOME``, by default ``~/.monarch``."""
    return Path(os.environ.get("MONARCH_HOME", Path.home() / ".monarch")).joinpath(*subpaths)


class Misuse(ValueError):
    """The words of a command make no sense, whatever runs: its exit status is 2."""


@contextmanager
def reading() -> Iterator[None]:
    """The words of a command are read: a ValueError is a misuse of it."""
    try:
        yield
    except ValueError as error:
        raise Misuse(str(error)) from None


class conda:  # noqa: N801  # its name in the API
    """The active conda environment."""

    @staticmethod
    def active_env_dir() -> str | None:
        """The environment's directory; None outside of one."""
        return os.environ.get("CONDA_PREFIX")

    @staticmethod
    def active_env_name() -> str | None:
        """The environment's name; None outside of one."""
        return os.environ.get("CONDA_DEFAULT_ENV")
