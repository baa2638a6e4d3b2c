"""``monarch query`` and ``monarch snapshot``.

Telemetry of a running program, or of one that has left a file, in SQL.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, suppress
from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from ..config._units import SECOND, Unreadable, read_duration
from ..errors import MonarchError
from ..programs import connect
from ..telemetry.client import QueryEngineClient
from ..telemetry.result import QueryResult, as_table, missing
from ..telemetry.run_file import snapshot_source, write_run
from ..why.run import judged
from .found import OPTION, found, reach, split
from .json_option import JSON, say
from .utils import Misuse

app = typer.Typer()


_Format = Enum("_Format", {"table": "table", "json": "json", "jsonl": "jsonl"}, type=str)


@app.command(
    epilog=(
        'Example: monarch query "SELECT name, rank, queue_depth FROM actors ORDER BY queue_depth'
        ' DESC LIMIT 5"'
    )
)
def query(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROGRAM] [SQL|-]",
            help="As PROGRAM of `monarch why`; then one statement that reads, - for stdin.",
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read the statement from a file.")
    ] = None,
    output: Annotated[_Format, typer.Option("--format", help="How to print rows.")] = _Format.table,
    timeout: Annotated[str, typer.Option(help="Time for all of it: 500ms, 10s, 2m.")] = "10s",
    option: OPTION = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Ask a program in SQL: its actors, hosts, messages, waits.

    SHOW TABLES says what there is.

    Hosts and processes that did not answer are named on stderr.
    """
    try:
        program, rest = split(words)
        text = _statement(rest, file)
        seconds = duration(timeout)
        what = found(program, option)
        with nullcontext(what) if isinstance(what, Path) else connect(what) as source:
            answer = QueryEngineClient(source).query(text, seconds)
    except TimeoutError as error:
        _fail(f"{error}: try a longer --timeout")
    except (MonarchError, ValueError, ImportError, OSError) as error:
        _fail(str(error), 2 if isinstance(error, Misuse) else 1)
    _print(answer, _Format.json if as_json else output)


@app.command(epilog="Example: monarch snapshot before.duckdb")
def snapshot(
    output: Annotated[Path, typer.Argument(help="The file; one that is there is replaced.")] = Path(
        "run.duckdb"
    ),
    program: OPTION = None,
    timeout: Annotated[str, typer.Option(help="Time in which hosts have to answer.")] = "30s",
    as_json: JSON = False,
) -> None:
    """Keep all tables of a running program in a file.

    `monarch query --run` and duckdb read it.
    """
    seconds = duration(timeout)
    with reach(program) as connection:
        about = {**judged(connection), "reason": "monarch snapshot"}
        written = write_run(output, snapshot_source(connection), about, seconds)
    for line in missing(written.silent, written.left_out):
        typer.echo(line, err=True)
    say(
        as_json,
        f"wrote {written.path}, {written.bytes} bytes",
        **{**written._asdict(), "path": str(written.path)},
    )


def _statement(words: list[str], file: Path | None) -> str:
    if len(words) > 1:
        raise Misuse(f"give a program and one statement, in quotes: {words[0]!r} is neither")
    sql = words[0] if words else None
    if sql is not None and file is not None:
        raise Misuse("give either SQL or --file")
    if file is not None:
        return file.read_text()
    if sql == "-" or (sql is None and not sys.stdin.isatty()):
        return sys.stdin.read()
    if sql is None:
        raise Misuse("give SQL, - for stdin, or --file")
    return sql


def duration(text: str) -> float:
    """Seconds, of ``500ms``, ``10s``, ``2m``.

    Raises:
        ValueError: It is none.
    """
    with suppress(Unreadable):
        if seconds := read_duration(text) / SECOND:
            return seconds
    raise Misuse(f"duration must be a positive number followed by ms, s, m, or h; got {text!r}")


def _fail(reason: str, status: int = 1) -> NoReturn:
    typer.echo(f"monarch query: {reason}", err=True)
    raise typer.Exit(status)


def _print(answer: QueryResult, output: _Format) -> None:
    if output is _Format.json:
        print(json.dumps(answer, indent=2))
    elif output is _Format.jsonl:
        for row in answer.rows:
            print(json.dumps(row))
    else:
        print(as_table(answer.columns, answer.rows))
    for line in answer.warnings:
        typer.echo(line, err=True)
