"""Lines of logs, stacks and shapes as tables have them, and lines and shapes from those. Pure."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..logs.filter import LEVELS
from ..logs.line import LogLine
from ..stacks.model import ProcStacks

Row = tuple[Any, ...]


def shape_json(extent: Mapping[str, int]) -> str:
    """The labels and sizes of a mesh, as Monarch 0.7 writes them."""
    return json.dumps({"inner": {"labels": list(extent), "sizes": list(extent.values())}})


def view_json(extent: Mapping[str, int]) -> str:
    """A whole mesh as a region, as Monarch 0.7 writes it; it begins at rank 0 of itself."""
    sizes = list(extent.values())
    strides = [math.prod(sizes[at + 1 :]) for at in range(len(sizes))]
    region = {"offset": 0, "sizes": sizes, "strides": strides}
    return json.dumps({"labels": list(extent), "slice": region})


def sizes_of(written: str) -> dict[str, int]:
    """The sizes by label of a `shape_json`."""
    inner = json.loads(written)["inner"]
    return dict(zip(inner["labels"], inner["sizes"], strict=True))


def actor_name(row: Mapping[str, Any]) -> str:
    """Name the actor of a row of `actors` for people; the client is ``root`` there."""
    return "client" if row["status"] == "Client" else f"{row['name']}[{row['rank']}]"


def log_row(line: LogLine) -> Row:
    """A line as a row of `logs`."""
    return (
        _time(line), line.host, line.mesh, line.rank, line.stream, _level(line), line.logger or None, line.location or None,
        line.actor or None, line.endpoint or None, line.incarnation, line.job or None, line.text,
    )  # fmt: skip


def line_of(row: Mapping[str, Any], point: str = "") -> LogLine:
    """A row of `logs` as a line.

    Args:
        row: By the names of columns.
        point: Coordinates of the rank, which the row lacks.
    """
    return LogLine(
        row["timestamp_us"] / 1e6, row["stream"], LEVELS.get(row["level"] or "", 0), row["text"], row["host"], row["mesh"],
        row["rank"] or 0, point, row["job"] or "", row["incarnation"] or 0, row["actor"] or "", row["endpoint"] or "",
        row["logger"] or "", row["location"] or "",
    )  # fmt: skip


def event_row(record: LogLine) -> Row:
    """A record of `logging` as a row of `events`."""
    file, _, number = record.location.rpartition(":")
    place = (file, int(number)) if number.isdigit() else (None, None)
    fields = {
        "message": record.text, "mesh": record.mesh, "rank": record.rank, "actor": record.actor, "endpoint": record.endpoint
    }  # fmt: skip
    return (
        f"event {record.location}", record.logger, _level(record), json.dumps(fields), _time(record), None, 0, "", record.logger,
        *place,
    )  # fmt: skip


def stack_rows(procs: Iterable[ProcStacks]) -> Iterator[Row]:
    """Stacks as rows of `stacks`."""
    for proc in procs:
        of_proc = proc.mesh, proc.rank, proc.pid, proc.host, proc.how, proc.note or None
        for thread in proc.threads:
            of_thread = (
                thread.name,
                thread.actor or None,
                thread.endpoint or None,
                thread.waits_for or None,
            )
            for depth, frame in enumerate(thread.frames):
                yield *of_proc, *of_thread, depth, frame.function, frame.file, frame.line
        if not proc.threads:
            yield *of_proc, None, None, None, None, None, None, None, None


def _time(line: LogLine) -> int:
    return int(line.time * 1e6)


def _level(line: LogLine) -> str | None:
    return logging.getLevelName(line.level) if line.level else None
