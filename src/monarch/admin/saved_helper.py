"""The helper process for the file of a run: the admin interface's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .saved import SavedRun


def reach(told: Mapping[str, Any]) -> SavedRun:
    """The run that the command line names."""
    return SavedRun(told["run"])


def main() -> None:
    """See `admin.helper`."""
    from . import helper  # here: a child, which only reaches the run, needs no server

    helper.main(reach)
