"""``%monarch``, after ``%load_ext monarch``: what a notebook asks of the program that it is.

    %monarch why [--seconds 1]                      why it does not go on, or that it does
    %monarch stacks [MESH] [--rank 0-3]             what every rank does right now
    %monarch logs [MESH] [--rank] [--level] [--grep] [--since 5m] [--last 50]
    %monarch sql SELECT ...                         rows, as a DataFrame where pandas is installed
    %%monarch sql [NAME] [--timeout 10]             the same of a whole cell; kept under that name
    %monarch ranks                                  the live map of all ranks

A question returns an object, which the cell shows if it stands last: ``verdict = %monarch why``.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from keyword import iskeyword
from operator import itemgetter
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand

from .. import config
from .._words import tame
from ..errors import MonarchError
from ..logs import flush_logs
from ..logs.aggregate import Aggregator
from ..logs.filter import LineFilter, parse_level, parse_since
from ..logs.line import LogEntry, LogLine
from ..logs.text import dated
from ..stacks import Stacks
from ..stacks.gather import of_this_program
from ..telemetry import read
from ..telemetry.client import QueryEngineClient
from ..telemetry.result import QueryResult
from ..telemetry.rows import line_of
from ..why import Verdict, why
from ..why.report import lines as lines_of

_PATIENCE = 5.0  # seconds for printed output to be in files
_WINDOW = 3.0  # seconds of log in which the same line of many ranks is shown once


def load(shell: Any) -> None:
    """Add the magics to a shell of IPython, and have its stop button end a cell that awaits."""
    shell.register_magics(_Monarch)
    _wake_by_signals()
    if shell.display_formatter is not None:  # what a terminal shows; notebooks take HTML
        plain = shell.display_formatter.formatters["text/plain"]
        plain.for_type(Stacks, _tamed(str))
        plain.for_type(
            Verdict, _tamed(lambda found: "\n".join(text for _, text in lines_of(found)))
        )
        plain.for_type(QueryResult, _tamed(repr))
        # of rows of others as well: pandas shows texts as they are
        plain.for_type_by_name("pandas.core.frame", "DataFrame", _tamed(repr))


def _wake_by_signals() -> None:
    """Have any signal wake the event loop of a kernel.

    By the stop button ipykernel cancels a cell that awaits, but its loop, which stands in a system
    call, sees that only when something else wakes it. A loop with a handler for some signal is woken
    by all; the one chosen does nothing by itself, either.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # IPython in a terminal
        return
    if signal.getsignal(signal.SIGURG) == signal.SIG_DFL:
        with suppress(NotImplementedError, ValueError, RuntimeError):  # no such loop, or thread
            loop.add_signal_handler(signal.SIGURG, lambda: None)


def _tamed(text: Callable[[Any], str]) -> Callable[[Any, Any, bool], None]:
    """How something is printed that has texts of ranks in it, which a terminal must not obey."""
    return lambda found, printer, cycle: printer.text(tame(text(found), False))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}. %monarch? says how it is used")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%monarch", add_help=False)
    commands = parser.add_subparsers(
        required=True, parser_class=_Parser, metavar="why|stacks|logs|sql|ranks"
    )

    def command(
        name: str, function: Callable[[argparse.Namespace], Any]
    ) -> argparse.ArgumentParser:
        found = commands.add_parser(name, add_help=False)
        found.set_defaults(function=function)
        return found

    command("why", _why).add_argument("--seconds", type=float, default=1.0)
    stacks = command("stacks", _stacks)
    stacks.add_argument("mesh", nargs="?")
    stacks.add_argument("--rank")
    logs = command("logs", _logs)
    logs.add_argument("mesh", nargs="?", default="")
    for name in ("--rank", "--level", "--grep", "--since"):
        logs.add_argument(name, default="")
    logs.add_argument("--last", type=int, default=50)
    command("ranks", _ranks)
    return parser


@magics_class
class _Monarch(Magics):
    @no_var_expand
    @line_cell_magic
    def monarch(self, line: str, cell: str | None = None) -> Any:
        command, _, rest = line.strip().partition(" ")
        try:
            if command == "sql":
                return self._sql(rest, cell)
            if cell is not None:
                raise UsageError("%%monarch is for sql; the others take one line, %monarch")
            arguments = _parser().parse_args(shlex.split(line))
            return arguments.function(arguments)
        except (MonarchError, ValueError, ImportError, TimeoutError) as error:
            raise UsageError(tame(f"monarch {command}: {error}", False)) from None

    monarch.__doc__ = __doc__

    def _sql(self, line: str, cell: str | None) -> Any:
        name, seconds, sql = "", 10.0, line
        if cell is not None:
            parser = _Parser(prog="%%monarch sql", add_help=False)
            parser.add_argument("name", nargs="?", default="")
            parser.add_argument("--timeout", type=float, default=seconds)
            options = parser.parse_args(shlex.split(line))
            name, seconds, sql = options.name, options.timeout, cell
            if name and (not name.isidentifier() or iskeyword(name)):
                raise UsageError(
                    f"%%monarch sql keeps rows under the name of a variable, not {name!r}"
                )
        found = QueryEngineClient().query(sql, seconds)
        rows = found
        if find_spec("pandas") is not None:
            rows = found.df()
            for missing in found.warnings:
                print(tame(missing, False))
        if not name:
            return rows
        assert self.shell is not None
        self.shell.user_ns[name] = rows
        return None


def _why(arguments: argparse.Namespace) -> Any:
    return why(seconds=arguments.seconds)


def _stacks(arguments: argparse.Namespace) -> Any:
    return of_this_program(arguments.mesh, arguments.rank).get()


def _ranks(arguments: argparse.Namespace) -> Any:
    return import_module(".rank_map", __package__).of_this_program()


def _logs(arguments: argparse.Namespace) -> None:
    if arguments.last < 1:
        raise ValueError(f"--last is how many lines to show, 1 or more, got {arguments.last}")
    lowest = parse_level(arguments.level) if arguments.level else 0
    earliest = parse_since(arguments.since, time.time()) if arguments.since else 0.0
    matches = LineFilter(arguments.mesh, arguments.rank, lowest, arguments.grep, earliest).matcher()
    flush_logs().get(timeout=_PATIENCE)
    found = read("logs", since_us=int(earliest * 1e6) or None).get()
    rows = sorted(found.rows("logs"), key=itemgetter("timestamp_us"))
    lines = list(filter(matches, map(line_of, rows)))
    for entry in _merged(lines[-arguments.last :]):
        sys.stdout.write(dated(entry, colours=True))
    for host, reason in found.silent.items():
        print(tame(f"{host} did not answer: {reason}", False))
    if not rows and not config.value("enable_file_capture"):
        print(
            "No lines are kept: call configure(enable_file_capture=True) before anything is"
            " spawned, or use a job."
        )
    elif not lines:
        print(f"None of {len(rows)} lines matches.")


def _merged(lines: Iterable[LogLine]) -> Iterator[LogEntry]:
    """Merge equal lines of many ranks."""
    meshes: dict[str, Aggregator] = {}
    for line in lines:
        yield from meshes.setdefault(line.mesh, Aggregator(_WINDOW)).take(line, line.time)
    for mesh in meshes.values():
        yield from mesh.flush()
