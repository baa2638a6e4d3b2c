"""The routes of logs, printed and recorded.

The agents of all hosts read them from files.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import inf
from typing import Any

from ..logs.filter import LineFilter, parse_level
from ..logs.line import LogLine
from ..telemetry import Collected
from ..telemetry.rows import line_of
from .feeds import Event, Feed, FeedSource
from .program import WatchedProgram
from .routes import EVENTS, ApiCall, ApiError, Events, Field, route

_MOST = 20_000  # matching lines that agents send at a time; the answer tells if there were more
_READ = 10.0  # seconds in which a host must have read its files
_MOST_LINES = 10_000  # of an answer
_FOLLOW = 0.5  # seconds between two looks for new lines
# seconds by which a line may come later than it was printed: hosts write with a delay, and have
# clocks of their own
_LATE = 3.0
_AT_ONCE = 500  # lines of an event
# seconds after which a reader hears of the place also where no lines come: a reader that goes on
# there reads little again
_RETOLD = 10.0
_LAST = 253402300800.0  # the year 10000
_FIELDS = {
    "mesh": Field("string", "Name of a mesh of procs"),
    "rank": Field("string", "Ranks of it: 0,3-5 or ::2 or hosts=1,gpus=0:4"),
    "level": Field("string", "Records of logging from this level on: INFO, WARNING, ..."),
    "grep": Field("string", "A text that the line contains"),
    "since": Field("string", "The earliest time: seconds since 1970, or RFC 3339"),
}


@route(
    "GET",
    "/v1/logs",
    seconds=20.0,
    fields={
        **_FIELDS,
        "until": Field("string", "The latest time"),
        "limit": Field("integer", "Lines, at most; 1000 if nothing is said"),
    },
)
def _logs(call: ApiCall) -> Any:
    """The last lines of ranks on all hosts, printed and logged, in order of time.

    Ranks that have ended are included. Hosts filter at the files: lines that do not match push
    out none that do. `left_out` counts older ones that match.
    """
    wanted = _filter(call)._replace(until=moment(call.text("until", ""), 0.0))
    limit = call.integer("limit", 1000, 1, _MOST_LINES)
    found = _collect(call.program, wanted)
    lines = _lines(found)
    return {
        "lines": [line._asdict() for line in lines[-limit:]],
        "left_out": max(0, len(lines) - limit) + found.left_out.get("logs", 0),
        "silent": found.silent,
    }


@route("GET", "/v1/logs/follow", seconds=0, answers=EVENTS, fields=_FIELDS)
def _follow(call: ApiCall) -> Events:
    """Lines as they come: an event `lines` for those of a moment.

    Without `since`, from now on. A reader that was cut off goes on by the header `Last-Event-ID`,
    and gets lines of the last moment again.
    """
    wanted, program = _filter(call), call.program
    since = moment(call.place, wanted.since or time.time())
    return Events(
        Feed(lambda: _Following(program, wanted._replace(since=since)), program.ended, _FOLLOW)
    )


class _Following(FeedSource):
    """Asks for the lines since the look before, and a little earlier, and knows those again."""

    def __init__(self, program: WatchedProgram, wanted: LineFilter) -> None:
        self._program = program
        self._wanted = wanted
        self._since = wanted.since
        self._seen: Counter[LogLine] = Counter()
        self._told = -inf

    def look(self) -> Iterable[Event]:
        looked = time.time()
        found = _collect(self._program, self._wanted._replace(since=self._since))
        lines = _lines(found)
        known = self._seen.copy()
        news = [line for line in lines if not _counted(known, line)]
        # by the clock of here: a line of a clock that is ahead hides no others, and a filter that
        # finds nothing reads nothing again
        self._since = max(self._since, looked - _LATE)  # never before the first time that is wanted
        self._seen = Counter(line for line in lines if line.time >= self._since)
        shown = [line._asdict() for line in news]
        if left_out := found.left_out.get("logs", 0):
            yield Event("not_read", {"lines": left_out})
        *full, last = [shown[at : at + _AT_ONCE] for at in range(0, max(1, len(shown)), _AT_ONCE)]
        # who was cut off between these gets all of them again
        yield from (Event("lines", each) for each in full)
        if last or self._since >= self._told + _RETOLD:
            self._told = self._since
            yield Event("lines", last, f"{self._since:.6f}")


def _counted(known: Counter[LogLine], line: LogLine) -> bool:
    """Return whether the line is one of those already sent.

    A rank may say the same twice in a microsecond.
    """
    known[line] -= 1
    return known[line] >= 0


def _collect(program: WatchedProgram, wanted: LineFilter) -> Collected:
    since_us = int(wanted.since * 1e6) or None
    return program.collect(
        "logs", "procs", since_us=since_us, limit=_MOST, within=_READ, lines=wanted
    )


def matching(found: Collected, wanted: LineFilter) -> Collected:
    """Keep the lines that match, where no host has filtered them."""
    matches, points = wanted.matcher(), _points(found)
    rows = found.rows("logs")
    kept = [row for row, line in zip(rows, _made(rows, points), strict=True) if matches(line)]
    logs = {name: [row[name] for row in kept] for name in found.columns["logs"]}
    return found._replace(columns={**found.columns, "logs": logs})


def _points(found: Collected) -> dict[Any, str]:
    return {(row["mesh"], row["rank"]): _point(row) for row in found.rows("procs")}


def _lines(found: Collected) -> list[LogLine]:
    """Return the lines in order of time."""
    return sorted(_made(found.rows("logs"), _points(found)), key=lambda line: line.time)


def _made(rows: Iterable[Mapping[str, Any]], points: Mapping[Any, str]) -> Iterator[LogLine]:
    return (line_of(row, points.get((row["mesh"], row["rank"]), "")) for row in rows)


def _point(row: Mapping[str, Any]) -> str:
    return ",".join(
        f"{name}={index}" for name, index in json.loads(row["coordinates_json"]).items()
    )


def _filter(call: ApiCall) -> LineFilter:
    """`grep` is a text: a pattern of a stranger can take for ever, and nothing ends it."""
    level = call.text("level", "")
    wanted = LineFilter(
        call.text("mesh", ""), call.text("rank", ""), parse_level(level) if level else 0,
        re.escape(call.text("grep", "")), moment(call.text("since", ""), 0.0),
    )  # fmt: skip
    wanted.matcher()  # says what can't be read
    return wanted


def moment(text: str, default: float) -> float:
    """A time in seconds since 1970, as a query has it.

    Raises:
        ApiError: It is none.
    """
    if not text:
        return default
    try:
        found = float(text)
    except ValueError:
        try:
            found = datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError):
            found = float("nan")
    if not 0 <= found <= _LAST:
        raise ApiError(
            "bad_request", f"a time is seconds since 1970, or RFC 3339, not {text[:80]!r}"
        )
    return found
