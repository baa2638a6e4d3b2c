"""``monarch debug``: the prompt of the debugger, in a terminal or fed by a script."""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import secrets
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any, TextIO

import typer

from .. import _ours
from ..debugger.console import Completer, Console, Terminal
from ..debugger.dap import Port, find
from ..programs import Connection
from .found import OPTION, reach, split
from .utils import Misuse

_HISTORY = "~/.monarch/debug_history"
# as pdb shows it
_SOURCE = re.compile(r"(?P<head>\s*\d+\s+(?:B?(?:->|>>)?)\t|-> )(?P<code>.*)", re.DOTALL)

app = typer.Typer()


@app.command(epilog="Example: monarch debug attach trainer 3")
def debug(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROGRAM] [COMMAND]...",
            help="As PROGRAM of `monarch why`; a command to begin with: attach trainer 3.",
        ),
    ] = None,
    option: OPTION = None,
    dap: Annotated[
        str | None,
        typer.Option(
            metavar="MESH[RANKS]",
            help="Let an editor debug these ranks: trainers[3], trainers[gpus=0:2].",
        ),
    ] = None,
    port: Annotated[
        int, typer.Option(help="Port on this machine for the first rank, with --dap; 0 for any.")
    ] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Tell what --dap has opened as JSON objects.")
    ] = False,
) -> None:
    """Debug the actors of a running program that have stopped.

    They stop by breakpoint(), errors, `break` and `interrupt`.

    Reads commands from stdin, line by line, where that is no terminal: monarch debug < commands.
    With --dap, an editor debugs ranks that need not have stopped, by the Debug Adapter Protocol.
    """
    if as_json and dap is None:
        raise typer.BadParameter(
            "it is for --dap: the prompt is for people, and for scripts on stdin"
        )
    program, words = split(command)
    with reach(program, option) as connection:
        if dap is not None:
            _serve_editors(connection, dap, port, as_json)
            return
        if not Console(connection.root, _terminal()).run(" ".join(words)):
            raise typer.Exit(1)


def _serve_editors(connection: Connection, wanted: str, port: int, as_json: bool) -> None:
    found = re.fullmatch(r"(?P<mesh>[^\[\]]+)\[(?P<ranks>[^\[\]]+)\]", wanted)
    if found is None:
        raise Misuse(f"--dap takes a mesh of procs and ranks, such as trainers[3], not {wanted!r}")
    token = secrets.token_urlsafe(24)
    for index, proc in enumerate(find(connection, found["mesh"], found["ranks"], _unreached)):
        name = f"{proc.mesh}[{proc.rank}]"
        tell = functools.partial(_say, name, sys.stderr if as_json else sys.stdout)
        opened = Port(connection.hub, proc.address, port and port + index, tell, token)
        if as_json:
            where = {"address": opened.address, "token": token}
            print(json.dumps({"mesh": proc.mesh, "rank": proc.rank, **where}), flush=True)
        else:
            tell(f"an editor can attach; for launch.json: {json.dumps(opened.entry(name))}")
    with suppress(KeyboardInterrupt):
        connection.wait()


def _unreached(host: str, why: str) -> None:
    print(f"host {host} can't be reached: {why}", file=sys.stderr)


def _say(label: str, to: TextIO, text: str) -> None:
    print(f"{label}: {text}", file=to, flush=True)


def _terminal() -> Terminal:
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        return Terminal(echo=not sys.stdin.isatty())
    try:
        return _Prompting()
    except ImportError as error:
        print(
            f"Without line editing and colours: no {error.name} (pip install 'pymonarch[debug]').",
            file=sys.stderr,
        )
        return Terminal()


class _Prompting(Terminal):
    """A terminal with line editing, a history, completion, and source in colours."""

    def __init__(self) -> None:
        super().__init__()
        toolkit = importlib.import_module("prompt_toolkit")
        completion = importlib.import_module("prompt_toolkit.completion")
        history = importlib.import_module("prompt_toolkit.history")
        self._completion = completion
        self._patch: Any = importlib.import_module("prompt_toolkit.patch_stdout").patch_stdout
        path = _own_history()
        self._prompt: Any = toolkit.PromptSession(
            history=history.FileHistory(path) if path else None, complete_while_typing=False
        )
        self._highlight = _highlighter()

    def read(self, prompt: str, complete: Completer) -> str:
        with self._patch(raw=True):
            line: str = self._prompt.prompt(prompt, completer=self._completer(complete))
        return line

    def _completer(self, complete: Completer) -> Any:
        completion = self._completion

        class Words(completion.Completer):  # type: ignore[misc, name-defined]  # imported late
            def get_completions(self, document: Any, event: Any) -> Any:
                before = document.text_before_cursor
                begin = len(before) - len(
                    re.split(r"[\s`@#$%^&*()=+\[{\]}\\|;:'\",<>?]", before)[-1]
                )
                for word in complete(before, begin, len(before)):
                    yield completion.Completion(word, start_position=begin - len(before))

        return completion.ThreadedCompleter(Words())

    def write_code(self, text: str) -> None:
        self.write("".join(map(self._coloured, text.splitlines(keepends=True))))

    def _coloured(self, line: str) -> str:
        found = _SOURCE.fullmatch(line)
        if found is None or not found["code"].strip():
            return line
        return found["head"] + self._highlight(found["code"])


def _own_history() -> str | None:
    """Make the file of the history, for this user alone; None where it can't be, and a line."""
    above, name = os.path.split(path := os.path.expanduser(_HISTORY))
    try:
        with _ours.opened(above, make=True) as place, open(place.open(name, _ours.APPEND)) as file:
            os.fchmod(file.fileno(), 0o600)  # one of an older version
    except OSError as error:
        print(f"what you type is not kept for the next time: {error}", file=sys.stderr)
        return None
    return path


def _highlighter() -> Callable[[str], str]:
    pygments = importlib.import_module("pygments")
    lexer = importlib.import_module("pygments.lexers").PythonLexer(stripnl=False, ensurenl=False)
    formatter = importlib.import_module("pygments.formatters").TerminalFormatter()
    return lambda code: str(pygments.highlight(code, lexer, formatter))
