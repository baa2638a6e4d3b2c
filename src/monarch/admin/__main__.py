"""Print the table of routes, as docs/admin.md has it: `python -m monarch.admin`."""

from __future__ import annotations

from .helper import TABLES
from .openapi import table

assert TABLES
print(table(), end="")
