"""The option `--json` of the commands, and how they report their result."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .._words import named

JSON = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]


def say(as_json: bool, text: str, **told: object) -> None:
    """Report the result: a text for people, or a JSON object for programs."""
    if as_json:
        print(json.dumps(told))
    else:
        typer.echo(named(text), err=True)
