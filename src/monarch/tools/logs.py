"""``monarch logs``.

What the ranks of a job have printed and logged, from another terminal, also when the job has ended.
"""

from __future__ import annotations

import heapq
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, TypeVar

import typer

from ..errors import MonarchError
from ..job.find_logs import JobLogs, find_logs
from ..logs.aggregate import Aggregator
from ..logs.filter import LEVELS, LineFilter, parse_level, parse_since
from ..logs.line import LogEntry, LogLine
from ..logs.reader import MergedLines
from ..logs.remote import RemoteLogs, open_remote
from ..logs.terminal import coloured
from ..logs.text import dated

app = typer.Typer()

_POLL = 0.2  # seconds between two looks at files that are followed
_CHECK = 3.0  # seconds between two looks whether a job still runs
_WINDOW = 3.0  # seconds of log in which the same line of many ranks is shown once

T = TypeVar("T")


@app.command(epilog="Example: monarch logs --mesh trainers --rank 0,3-5 --since 5m -f")
def logs(
    job: Annotated[
        str | None,
        typer.Argument(
            help=(
                "A job, as its context or module.attribute; a process id; the beginning of a job's"
                " id; or a folder. Default: the job of the active context, else the last."
            )
        ),
    ] = None,
    mesh: Annotated[str, typer.Option(help="Lines of this mesh only.")] = "",
    rank: Annotated[
        str, typer.Option(help="Of these ranks: 0,3-5 or ::2 or hosts=1,gpus=0:4.")
    ] = "",
    level: Annotated[
        str, typer.Option(help=f"Records from this level on: {', '.join(LEVELS)}.")
    ] = "",
    grep: Annotated[
        str, typer.Option(help="Lines in which this regular expression is found.")
    ] = "",
    since: Annotated[
        str, typer.Option(help="Not older than 90s, 5m, 2h, 1d, or a time: 2026-03-01T09:30.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new lines, until the job ends.")
    ] = False,
    merge: Annotated[
        bool, typer.Option("--merge", help="Show the same line of many ranks once.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Show what ranks of a job have printed and logged, by time.

    The job may have ended.
    """
    _option("--rank", lambda: LineFilter(ranks=rank).matcher())
    _option("--grep", lambda: LineFilter(grep=grep).matcher())
    lowest = _option("--level", lambda: parse_level(level) if level else 0)
    earliest = _option("--since", lambda: parse_since(since, time.time()) if since else 0.0)
    found = find_logs(job)
    colours = coloured(sys.stdout)
    wanted = LineFilter(mesh, rank, lowest, grep, earliest)
    reader = MergedLines(found.folder, wanted)
    here = reader.find()
    files, unreachable = _open_remote(found, wanted, here)
    for why in unreachable:
        typer.echo(f"not reachable: {why}", err=True)

    def read() -> Iterator[LogLine]:
        return heapq.merge(
            reader.read(), *(each.read() for each in files), key=lambda line: line.time
        )

    try:
        batches = _follow(read, found) if follow else iter([read()])
        shown = _show(_merge(batches) if merge else batches, as_json, colours)
    except KeyboardInterrupt:  # the way to end --follow
        return
    except BrokenPipeError:
        # the reader of the pipe, such as `head`, has ended; drop the buffer, or the exit would
        # flush it and fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    finally:
        reader.close()
    hosts = sorted({*reader.find(), *(host for each in files for host in each.hosts)})
    for each in files:
        if each.error:
            typer.echo(f"reading of {', '.join(each.hosts)} has ended: {each.error}", err=True)
    if not hosts:
        raise FileNotFoundError(
            f"no logs of {found.name}: there are no files in {found.folder}/<host>"
        )
    if reader.rubbish:
        typer.echo(f"{reader.rubbish} lines were torn, or none, and were left out", err=True)
    if not shown:
        typer.echo(
            f"no line of {found.name} matches; there are files of {', '.join(hosts)}", err=True
        )


def _open_remote(found: JobLogs, wanted: LineFilter, here: list[str]) -> RemoteLogs:
    """Open the logs of other hosts, while the job runs.

    Else, and where that fails, the text says why they are missing.
    """
    if found.all_here:
        return RemoteLogs([], [])
    try:
        hosts = found.other_hosts()
    except (MonarchError, RuntimeError, OSError, ValueError) as error:
        return RemoteLogs([], [f"the hosts of {found.name}: {str(error).splitlines()[0]}"])
    if not hosts:
        others = f" other than {', '.join(here)}" if here else ""
        why = f"files on hosts of {found.name}{others}, as it does not run; there, they are in"
        return RemoteLogs([], [f"{why} {found.folder}"])
    return open_remote(hosts, found.folder, wanted, here)


def _option(name: str, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=name) from None


def _follow(read: Callable[[], Iterator[LogLine]], found: JobLogs) -> Iterator[Iterator[LogLine]]:
    """Batches of lines until the job has ended; for a program without one, for ever."""
    check = 0.0
    while True:
        ended = False
        if found.state is not None and time.monotonic() >= check:
            ended = found.job() is None  # first: what it wrote before is read below
            check = time.monotonic() + _CHECK
        yield read()
        if ended:
            typer.echo(f"{found.name} does not run", err=True)
            return
        time.sleep(_POLL)


def _merge(batches: Iterable[Iterator[LogLine]]) -> Iterator[Iterator[LogEntry]]:
    """Merge equal lines of many ranks into one."""
    meshes: dict[str, Aggregator] = {}

    def taken(batch: Iterator[LogLine]) -> Iterator[LogEntry]:
        for line in batch:
            yield from meshes.setdefault(line.mesh, Aggregator(_WINDOW)).take(line, line.time)
        for aggregator in meshes.values():
            yield from aggregator.expire(time.time())

    yield from map(taken, batches)
    yield (entry for aggregator in meshes.values() for entry in aggregator.flush())


def _show(
    batches: Iterable[Iterator[LogLine] | Iterator[LogEntry]], as_json: bool, colours: bool
) -> int:
    """Print; returns how many there were."""
    shown = 0
    for batch in batches:
        for each in batch:
            sys.stdout.write(_as_json(each) if as_json else dated(_as_entry(each), colours))
            shown += 1
        sys.stdout.flush()
    return shown


def _as_entry(each: LogLine | LogEntry) -> LogEntry:
    return (
        LogEntry(each, each.text, 1, {each.rank: each.point}) if isinstance(each, LogLine) else each
    )


def _as_json(each: LogLine | LogEntry) -> str:
    if isinstance(each, LogLine):
        return each.to_json() + "\n"
    merged = {"text": each.text, "lines": each.lines, "ranks": sorted(each.ranks)}
    return json.dumps({**json.loads(each.line.to_json()), **merged}) + "\n"
