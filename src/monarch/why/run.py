"""The verdict on a run that has left a file: who had ended, and who waited for whom at that moment.

There is one look, so what hung is not told from what was slow.
"""

from __future__ import annotations

import os
from typing import Any

from .._words import duration
from ..telemetry import QueryEngineClient
from .model import FINE, SLOW, STUCK, Verdict

_FAILED = """
    SELECT mesh, rank, reason FROM procs
    WHERE state = 'ended' AND (signal IS NOT NULL OR exit_code <> 0) ORDER BY timestamp_us, mesh, rank
"""
_WAITS = """
    SELECT t.name, t.rank, t.status, t.endpoint, count(DISTINCT a.id) AS waiting, any_value(a.name) AS who,
        max(m.made - w.since_us) / 1e6 AS seconds
    FROM waits w JOIN actors a ON a.id = w.actor_id JOIN actors t ON t.id = w.for_actor_id,
        (SELECT max(timestamp_us) AS made FROM hosts) m
    WHERE a.status <> 'Client' AND w.for_actor_id NOT IN (
        SELECT actor_id FROM waits WHERE actor_id IS NOT NULL AND for_actor_id IS NOT NULL)
    GROUP BY ALL ORDER BY waiting DESC, seconds DESC NULLS LAST
"""
_ABOUT = "SELECT name, value FROM run WHERE kind = 'about'"
_SECONDS = 60.0


def of_run(path: str | os.PathLike[str]) -> Verdict:
    """The verdict on the file of a run, as `why` gives it.

    It is stuck if a process had failed, slow if actors waited for others.

    Raises:
        FileNotFoundError: There is none.
        QueryError: It is another file.
        ImportError: duckdb or arro3 is not installed.
    """
    client = QueryEngineClient(os.fspath(path))
    about = {row["name"]: row["value"] for row in client.query(_ABOUT, _SECONDS).rows}
    failed = client.query(_FAILED, _SECONDS)
    waits = client.query(_WAITS, _SECONDS).rows
    failures = tuple(
        f"{row['mesh']}[{row['rank']}] has ended: {row['reason'] or 'nobody knows why'}"
        for row in failed.rows
    )
    told = (
        [failures[0] + (f", and {len(failures) - 1} more" if len(failures) > 1 else "")]
        if failures
        else []
    )
    told += [_wait(waits[0])] if waits else []
    status = STUCK if failures else SLOW if waits else FINE
    sentence = (
        f"{about.get('made', 'Then')}:"
        f" {'; '.join(told) or 'no process had failed, and no actor waited for another'}."
    )
    return Verdict(status, sentence, failures=failures, silent=failed.silent)


def _wait(row: dict[str, Any]) -> str:
    many = f"{row['waiting']} ranks" if row["waiting"] > 1 else "a rank"
    seconds = f" for {duration(row['seconds'])}" if (row["seconds"] or 0) >= 1 else ""
    doing = f"in {row['endpoint']}" if row["endpoint"] else row["status"].lower()
    return (
        f"{many} of {row['who']} waited{seconds} for {row['name']}[{row['rank']}], which was"
        f" {doing}"
    )
