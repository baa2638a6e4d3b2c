"""Logs of a program.

What its ranks print and record, shown at the client, kept in files, read from other terminals.

Read `line` first: the model of one line, which everything else here takes or makes.

Imports `_core.plane`, `actor`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from .flush import flush_logs

__all__ = ["flush_logs"]


def __getattr__(name: str) -> _Any:
    if name != "flush_logs":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # late: an agent imports this package, and shows nothing
    return import_module(f"{__name__}.flush").flush_logs
