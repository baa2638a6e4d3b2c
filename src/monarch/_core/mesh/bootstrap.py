"""How procs are started: the command, the environment, the function that runs first."""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..actors.actor import Actor
from ..actors.context import context
from ..actors.endpoint import endpoint
from ..actors.sync_cell import SyncCell
from ..extension import bootstrap_module
from ..hub.spawn_requests import Command
from ..processes.specs import PROC_MODULE
from ..shape import Point


class BootstrapCommand:
    """The program that becomes a proc.

    Args:
        program: Path or name of the executable: a Python interpreter, or something that starts one.
        arg0: What it sees as its own name; None for `program`.
        args: Its arguments.
        env: Changes to the environment: name to value, or to None to remove a variable.
        inherit_env: Start from the environment of the proc's launcher; False starts from an
            empty one.
    """

    def __init__(
        self,
        program: str,
        arg0: str | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str | None] | None = None,
        inherit_env: bool = True,
    ) -> None:
        self.program = program
        self.arg0 = arg0
        self.args = list(args)
        self.env: dict[str, str | None] = _check_env(env or {})
        self.inherit_env = inherit_env

    def with_env(self, env: Mapping[str, str | None]) -> BootstrapCommand:
        """Return a copy with these changes in its environment, too.

        Args:
            env: Variables to set, or to unset where None.
        """
        changed = copy.copy(self)
        changed.args = list(self.args)
        changed.env = {**self.env, **_check_env(env)}
        return changed

    @property
    def is_default(self) -> bool:
        """Return whether a fork of the spawner will do.

        It has the current interpreter, and the inherited environment.
        """
        return self.inherit_env and self.as_command() == Command(sys.executable, None, _arguments())

    def as_command(self) -> Command:
        """Return the program and its arguments."""
        return Command(self.program, self.arg0, tuple(self.args))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BootstrapCommand) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return (
            f"BootstrapCommand({self.program!r}, {self.arg0!r}, {self.args!r}, env={self.env!r}, "
            f"inherit_env={self.inherit_env})"
        )


def _arguments() -> tuple[str, str]:
    return "-m", bootstrap_module() or PROC_MODULE


def default_bootstrap_cmd() -> BootstrapCommand:
    """Return the command by which procs start by default.

    It has the current interpreter, and the inherited environment.
    """
    return BootstrapCommand(sys.executable, None, _arguments())


def python_bootstrap_cmd(executable: str) -> BootstrapCommand:
    """Return a command that starts procs under another interpreter.

    That must have this package.
    """
    return BootstrapCommand(os.fspath(executable), None, _arguments())


def _check_env(env: Mapping[str, str | None]) -> dict[str, str | None]:
    for name, value in env.items():
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise TypeError(
                f"env maps names to strings, or to None to remove a variable; got {name!r}:"
                f" {value!r}"
            )
    return dict(env)


CommandChoice = BootstrapCommand | Callable[[Point], BootstrapCommand] | None


def choose_command(
    choice: CommandChoice, point: Point, default: BootstrapCommand
) -> BootstrapCommand:
    """The command of one proc.

    Raises:
        TypeError: The choice is neither a command nor a function that gives one.
    """
    command = choice(point) if callable(choice) else choice
    if command is None:
        return default
    if not isinstance(command, BootstrapCommand):
        raise TypeError(
            f"bootstrap_command must be, or return, a BootstrapCommand; got {command!r}"
        )
    return command


_BIND_KEYS = frozenset({"cpunodebind", "membind", "physcpubind", "cpus"})


def check_binding(
    proc_bind: Sequence[Mapping[str, str]] | None, per_host: int
) -> list[Mapping[str, str]]:
    """One binding for each proc of a host; empty ones where nothing was asked for.

    Raises:
        ValueError: Their number is not that of the procs, or a key is unknown.
    """
    if proc_bind is None:
        return [{}] * per_host
    if len(proc_bind) != per_host:
        raise ValueError(
            f"proc_bind length ({len(proc_bind)}) must equal procs_per_host ({per_host})"
        )
    for binding in proc_bind:
        unknown = binding.keys() - _BIND_KEYS
        if unknown:
            raise ValueError(
                f"proc_bind has unknown keys {sorted(unknown)}; known are {sorted(_BIND_KEYS)}"
            )
    return list(proc_bind)


class Bootstrap(Actor):
    """Runs the function given as ``bootstrap`` before any other actor of the proc is created.

    Errors show how this is called, so it goes by the name of the proc mesh:
    ``trainers.bootstrap()``.
    """

    @endpoint
    def bootstrap(self, function: Callable[[], Any]) -> bool:
        """Run the function; return whether it has made actors, procs or ports.

        Those live as long as this actor does.
        """
        cell = context()._cell
        assert isinstance(cell, SyncCell)
        result = function()
        import inspect

        if inspect.isawaitable(result):
            cell.run_awaitable(result)
        return bool(cell.ownership.processes() or cell.ports)
