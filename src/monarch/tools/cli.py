"""The commands. Each is a thin layer over the public API; results go to stdout, all else to stderr.

Exit status: 0 if it worked, 1 if it did not, with one line that says why, 2 for wrong usage. What
`monarch why` finds is 0, 3, 4 or 5; docs/commands.md has those of commands that run others.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from .._words import TameStream, bare, tame
from ..errors import MonarchError
from .json_option import styled
from .utils import Misuse

# What the user can put right; anything else is a bug, and shows a traceback.
_USER_ERRORS = (MonarchError, ValueError, ImportError, OSError, NotImplementedError)

_GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "Look": {
        "programs": ("list",),
        "why": ("why",),
        "stacks": ("stacks",),
        "logs": ("logs",),
        "status": ("status", "doctor"),
        "tui": ("tui",),
        "dashboard": ("dashboard",),
        "query": ("query", "snapshot"),
        "metrics": ("metrics",),
        "profile": ("profile",),
    },
    "Debug": {"debug": ("debug",), "report": ("report",), "demo": ("demo",)},
    "Jobs": {
        "jobs": ("apply", "kill"),
        "scripts": ("run", "serve"),
        "exec": ("exec",),
        "shell": ("shell",),
        "scale": ("scale", "bounce"),
        "contexts": ("context",),
    },
    "Files and ports": {
        "sync": ("sync",),
        "port_forward": ("port-forward",),
        "transfers": ("rdma",),
    },
    "Serve": {"worker": ("worker", "secret"), "admin": ("admin",)},
}
"""Commands by module, in the groups and the order in which help lists them."""

_PASS_ON = {"run", "serve", "exec", "shell"}
"""Commands that pass on the output of programs, byte by byte where it goes to a file."""


class _AsItIs:
    """Takes the values of a parameter that need no conversion as they are, all others as typer does.

    From 0.29 on typer has pydantic look at each value, also at defaults, and takes 85 ms to import
    it. Other releases have no such attribute of parameters, and don't look at this one.
    """

    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:
        kind = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if kind == list[str]:
            return list(value)
        if isinstance(value, kind):
            return value
        param._runtime_param = None  # typer makes its own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


class _Lean:
    def get_params(self, ctx: Any) -> Any:
        found: Any = super().get_params(ctx)  # type: ignore[misc]
        for param in found:
            param._runtime_param = getattr(param, "_runtime_param", None) or _AsItIs
        return found


class _Command(_Lean, TyperCommand): ...


class _Group(_Lean, TyperGroup): ...


def commands(first: str | None = None) -> typer.Typer:
    """Make the command line.

    Args:
        first: A command, with which those of other modules are left out: it starts sooner, by half.
            All are there if it is none.
    """
    app = typer.Typer(
        name="monarch",
        cls=_Group,
        help="Actors on meshes of processes: workers, jobs, secrets.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    listed = [
        (panel, module, words) for panel, of in _GROUPS.items() for module, words in of.items()
    ]
    chosen = [each for each in listed if first in each[2]]
    if not chosen:
        app.info.epilog = _quick_start()
    for panel, module, _ in chosen or listed:
        found = import_module(f".{module}", __package__).app
        for command in found.registered_commands:
            command.rich_help_panel, command.cls = panel, _Command
        app.add_typer(found, rich_help_panel=panel, cls=_Group)
    return app


def _quick_start() -> str:
    """The end of the help, with its lines as they are."""
    text = Path(__file__).with_name("quick_start.txt").read_text()
    return "\n\n".join(f"\b\n{part}" for part in text.split("\n\n"))


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the arguments, those of the process by default.

    Then run the command, and turn errors of the user into one line.
    """
    words = sys.argv[1:] if argv is None else argv
    if not _PASS_ON.intersection(words[:1]):
        sys.stdout, sys.stderr = (TameStream(bare(stream)) for stream in (sys.stdout, sys.stderr))
    notes = logging.StreamHandler()
    notes.setFormatter(_Note())
    logging.basicConfig(level=logging.INFO, handlers=[notes])
    try:
        commands(*words[:1])(args=argv, prog_name="monarch")
    except _USER_ERRORS as error:
        print(styled("bad", "error: ", sys.stderr), _note(str(error)), sep="", file=sys.stderr)
        sys.exit(2 if isinstance(error, Misuse) else 1)


class _Note(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _note(super().format(record))


def _note(text: str) -> str:
    """A text in which a further line of a name is not taken for another text."""
    return tame(text, False).replace("\n", "\n  ")


def get_parser() -> argparse.ArgumentParser:
    """A parser for programs that call ``args.func(args)``, as with Monarch 0.7.

    It passes all arguments on to `main`.
    """
    parser = argparse.ArgumentParser(prog="monarch", add_help=False)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    parser.set_defaults(func=lambda args: main(args.command))
    return parser


if __name__ == "__main__":  # as programs of Monarch 0.7 start it
    main()
