"""Logs of a program: what its ranks print and record, shown at the client, kept in files, read from other terminals.

Read `line` first: the model of one line, which everything else here takes or makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._lazy import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from .flush import flush_logs

__getattr__, __dir__ = _lazy_names(__name__, {"flush": ("flush_logs",)})
__all__ = ["flush_logs"]
