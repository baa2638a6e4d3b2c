"""The command `monarch`, typed in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest


class Typed(NamedTuple):
    """What a command has printed, and how it ended."""

    exit_code: int
    out: str
    err: str


Type = Callable[..., Typed]


def prompt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Type:
    """Make the function that runs ``monarch ARGS``."""
    from monarch.tools.__main__ import main

    def run(*args: str) -> Typed:
        monkeypatch.setattr(sys, "argv", ["monarch", *args])
        with pytest.raises(SystemExit) as end:
            main()
        return Typed(end.value.code or 0, *capsys.readouterr())  # type: ignore[arg-type]

    return run
