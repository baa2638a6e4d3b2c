"""The option `--json` of the commands, and how they report their result."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from .._words import aligned, named, tame
from ..logs.terminal import coloured

_STYLES = {
    "good": "1;32", "late": "1;33", "bad": "1;31", "trouble": "1;31", "head": "1", "program": "36",
    "blamed": "33", "plain": "",
}  # fmt: skip

JSON = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


def say(as_json: bool, text: str, **told: object) -> None:
    """Report the result: a text for people, or a JSON object for programs."""
    if as_json:
        print(json.dumps(told))
    else:
        typer.echo(named(text), err=True)


def print_result(result: object, indent: int | None = None) -> None:
    """Print the result, at once: a text as it is, all else as JSON."""
    text = result if isinstance(result, str) else json.dumps(result, indent=indent, default=str)
    print(text, flush=True)


def styled(kind: str, text: str, file: Any) -> str:
    """A text in the style of its kind, where the file shows colours; `rich` takes 50 ms to import."""
    style = _STYLES[kind]
    return f"\x1b[{style}m{text}\x1b[0m" if style and coloured(file) else text


def print_lines(lines: Iterable[tuple[str, str]]) -> None:
    """Print lines of a report, each in the style of its kind."""
    for kind, text in lines:
        print(styled(kind, tame(text, False), sys.stdout))


def print_table(headings: str, rows: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Print rows, each in the style of its kind, below headings: names and errors as they are."""
    kinds, cells = zip(("head", headings.split()), *rows, strict=True)
    lines = aligned([[named(cell) for cell in row] for row in cells])
    print_lines(zip(kinds, lines, strict=True))
