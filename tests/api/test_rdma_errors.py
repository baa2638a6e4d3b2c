"""The troubleshooting table of docs/rdma.md starts from what people see: the beginning of every
error text stands there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from helpers.each import for_each

ROOT = Path(__file__).parents[2]
ERRORS = ("Error", "Warning", "Refusal")
WORDS = 5  # of a text that are to be found


def texts() -> Iterator[str]:
    """Every text that is given to an error in `monarch.rdma`; … stands for what is filled in."""
    for file in sorted((ROOT / "src/monarch/rdma").rglob("*.py")):
        for hub in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(hub, ast.Call)
                and isinstance(hub.func, ast.Name)
                and hub.func.id.endswith(ERRORS)
            ):
                yield from filter(None, map(_template, hub.args))


def _template(hub: ast.expr) -> str | None:
    if isinstance(hub, ast.Constant) and isinstance(hub.value, str):
        return hub.value
    if isinstance(hub, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else "…" for part in hub.values
        )
    return None


def beginning(text: str) -> str:
    """Without the place in the program that it starts with, and what is filled in at its end."""
    words = text.removeprefix("…: ").split()
    return " ".join(words[:WORDS]).rstrip("…:;, ")


@for_each("text", sorted({text for text in texts() if text.strip("…")}))
def test_the_table_has_the_beginning_of_every_error(text: str) -> None:
    table = (ROOT / "docs/rdma.md").read_text().partition("## Troubleshooting")[2]
    assert beginning(text) in " ".join(table.split()), (
        f"docs/rdma.md, Troubleshooting: add {beginning(text)!r}"
    )
