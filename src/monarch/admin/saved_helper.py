"""The helper process for the file of a run: the admin interface's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import helper
from .saved import SavedRun


def reach(told: Mapping[str, Any]) -> SavedRun:
    """The run that the command line names."""
    return SavedRun(told["run"])


def main() -> None:
    """See `admin.helper`."""
    helper.main(reach)
