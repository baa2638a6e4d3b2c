"""Follows a program through the engine: which functions are entered, in which process and thread,
and what called them.

The program sets `switch[0]` of `sitecustomize` to the number of a round (1 to 255) when something
begins that is to be followed, and to 0 when it is over; before it ends, it calls `name_processes`.
"""

from __future__ import annotations

import ast
import functools
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import monarch
from helpers.scripts import ScriptResult, package_path, program, run_script

ENGINE = Path(monarch.__file__).parent
SITE = Path(__file__).parent / "following_site"
SIZE = 1024  # of a note, as `sitecustomize` has it
THREADS = {"MainThread": "main", "monarch-io": "I/O"}


class Function(NamedTuple):
    """A function of the engine: ``hub.message_hub`` and ``MessageHub.cast``.

    One without a name, as lambdas have none, is called after the function that it stands in.
    """

    module: str
    name: str

    @property
    def last(self) -> str:
        """Its name without its class."""
        return self.name.rpartition(".")[2]

    @property
    def short(self) -> str:
        """Its name as a page has it: ``hub.message_hub.cast``."""
        return f"{self.module}.{self.last}"


class Entered(NamedTuple):
    """A function was entered.

    Attributes:
        at: Nanoseconds, on one clock for all processes.
        where: Process and thread: ``agent / main``.
        stack: This function, what called it, and so on.
    """

    at: int
    where: str
    stack: tuple[Function, ...]

    @property
    def function(self) -> Function:
        return self.stack[0]


def follow(
    *parts: str, env: Mapping[str, str] | None = None, timeout: float = 100.0
) -> dict[int, list[Entered]]:
    """Runs a program (see `scripts.program`); what was entered in each round, in the order in which
    it was.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join(filter(None, [str(SITE), package_path()]))
        environment = {
            "PYTHONPATH": path,
            "MONARCH_TEST_FOLLOW": folder,
            "MONARCH_TEST_ENGINE": str(ENGINE),
            **(env or {}),
        }
        result = run_script(program(*parts), env=environment, timeout=timeout)
        assert result.exit_code == 0 and not result.left_behind, str(result)
        return _read(Path(folder), result)


def name_processes(**pids: int) -> None:
    """Called by the program: who is who, for example
    ``name_processes(client=os.getpid(), proc=...)``.
    """
    with open(os.path.join(os.environ["MONARCH_TEST_FOLLOW"], "processes"), "a") as file:
        file.writelines(f"{pid} {name}\n" for name, pid in pids.items())


def _read(folder: Path, result: ScriptResult) -> dict[int, list[Entered]]:
    names = dict(line.split() for line in (folder / "processes").read_text().splitlines())
    rounds: dict[int, list[Entered]] = {}
    for file in folder.iterdir():
        if not file.name.isdigit():
            continue
        notes = file.read_bytes()
        for start in range(0, len(notes), SIZE):
            note = notes[start : start + SIZE].strip(b"\0 ").decode()
            if not note:
                break
            number, at, thread, *places = note.split(" ")
            del places[-1 if len(note) == SIZE else len(places) :]  # it was cut off
            where = f"{names.get(file.name, file.name)} / {_thread(thread)}"
            stack = tuple(_function(place) for place in places)
            rounds.setdefault(int(number), []).append(Entered(int(at), where, stack))
    assert rounds, f"nothing was followed\n{result}"
    return {number: sorted(entered) for number, entered in sorted(rounds.items())}


def _thread(name: str) -> str:
    return THREADS.get(
        name, "actor" if name.startswith("monarch-actor") else name.removeprefix("monarch-")
    )


@functools.cache
def _function(place: str) -> Function:
    path, _, line = place.rpartition(":")
    module = (
        path.removeprefix("_core/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )
    return Function(module, _names(path).get(int(line), "<none>"))


@functools.cache
def _names(path: str) -> dict[int, str]:
    """The functions of a file by the line that their code begins with; lambdas and the like by that
    of what they are part of.
    """
    names: dict[int, str] = {}

    def visit(node: ast.AST, inside: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                name = f"{inside}{child.name}"
                names[
                    min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                ] = name
                visit(child, f"{name}.")
            elif isinstance(child, ast.ClassDef):
                visit(child, f"{inside}{child.name}.")
            else:
                if isinstance(
                    child, (ast.Lambda, ast.GeneratorExp, ast.ListComp, ast.SetComp, ast.DictComp)
                ):
                    names.setdefault(child.lineno, f"{inside}<anonymous>")
                visit(child, inside)

    visit(ast.parse((ENGINE / path).read_text()), "")
    return names
