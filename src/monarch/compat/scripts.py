"""The commands of Monarch 0.7 that are words of `monarch` here."""

from __future__ import annotations

import sys

from ..tools.__main__ import main


def dashboard() -> None:
    """``monarch-dashboard``: as ``monarch dashboard``."""
    _run("dashboard")


def tui() -> None:
    """``monarch-tui``: as ``monarch tui``."""
    _run("tui")


def _run(word: str) -> None:
    sys.argv.insert(1, word)
    main()
