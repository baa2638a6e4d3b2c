"""``monarch context``: several jobs in one folder, of which one is active."""

from __future__ import annotations

from typing import Annotated

import typer

from .._words import named
from ..job import current
from .completion import context_names
from .json_option import JSON, print_result

NAME = Annotated[str, typer.Argument(autocompletion=context_names)]

app = typer.Typer(
    name="context",
    help="Have several jobs in one folder, of which one is active.",
    no_args_is_help=True,
)


@app.command("ls", epilog="Example: monarch context ls")
def list_contexts(as_json: JSON = False) -> None:
    """List the contexts; the active one has a star."""
    active = current.active_context()
    names = current.contexts()
    if as_json:
        print_result({"active": active, "contexts": names})
        return
    for name in names:
        print(f"{'*' if name == active else ' '} {named(name)}")
    if not names:
        print("No contexts.")


@app.command(epilog="Example: monarch context create small")
def create(name: str, as_json: JSON = False) -> None:
    """Make a context."""
    current.make_context(name)
    _done(as_json, f"Created context {name!r}", name)


@app.command(epilog="Example: monarch context use small")
def use(name: NAME, as_json: JSON = False) -> None:
    """Make a context the active one."""
    current.use_context(name)
    _done(as_json, f"Switched to context {name!r}", name)


@app.command(epilog="Example: monarch context rm small")
def rm(name: NAME, as_json: JSON = False) -> None:
    """End the job of a context, and remove the context."""
    current.remove_context(name)
    _done(as_json, f"Removed context {name!r}", name)


def _done(as_json: bool, text: str, name: str) -> None:
    print_result({"context": name} if as_json else text)
