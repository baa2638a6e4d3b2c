"""Lines that processes have printed, and records of `logging`, as rows.

They come from the files that the host agent keeps.

It reads them on the thread of the question: of each file the last bytes, and since the time that
was asked for.
"""

from __future__ import annotations

import heapq
import os
import threading
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

from ..logs.filter import LineFilter
from ..logs.keep import files_of
from ..logs.line import LogLine
from ..logs.reader import RankFile
from .registry import AGENT, Asked, Incomplete, produces
from .rows import Row, event_row, log_row

_MOST_BYTES = 32 << 20  # that are read for a question on a host, a second or two of work
_WRITTEN_WITHIN = 1.0  # seconds for lines that the agent has, and the disk has not


@produces("logs", AGENT)
def _logs(asked: Asked) -> Iterator[Row]:
    return map(log_row, _lines(asked))


@produces("events", AGENT)
def _events(asked: Asked) -> Iterator[Row]:
    return (event_row(line) for line in _lines(asked) if line.logger)


def _lines(asked: Asked) -> Iterator[LogLine]:
    """The lines of this host, by time.

    Raises:
        Incomplete: There are files, or lines, that can't be read here.
    """
    kept = files_of(asked.root)
    if not kept:
        raise Incomplete(
            "no files of logs are kept there: jobs keep them, and programs with"
            " `configure(enable_file_capture=True)`"
        )
    for files in kept:
        written = threading.Event()
        files.flush(written.set)
        written.wait(_WRITTEN_WITHIN)
    paths = sorted(set().union(*(files.written.copy() for files in kept)))
    since = (asked.since_us or 0) / 1e6
    most = _MOST_BYTES // max(1, len(paths))
    ranks = [RankFile(path, since, most) for path in paths]
    matches = (asked.lines or LineFilter(since=since)).matcher()
    try:
        yield from map(
            itemgetter(1), heapq.merge(*(rank.read(matches) for rank in ranks), key=itemgetter(0))
        )
    finally:
        for rank in ranks:
            rank.close()
    cut = [path for path, rank in zip(paths, ranks, strict=True) if rank.skipped]
    if cut:
        raise Incomplete(
            f"of {_named(cut)} only the last {most:,} bytes were read: ask for a later time, by"
            " timestamp_us > ..."
        )


def _named(paths: list[Path]) -> str:
    more = f", and {len(paths) - 1} more" if len(paths) > 1 else ""
    return os.path.join(*paths[0].parts[-2:]) + more
