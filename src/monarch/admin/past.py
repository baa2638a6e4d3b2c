"""The picture of the front page at a past moment.

It is made from the retained rows of event tables, of a running program or of a file.

Stacks are of the moment of a question alone, so this is no verdict: it lists the calls that were
being handled then, and the failures until then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..telemetry.rows import sizes_of
from ..why.model import RUNS
from .picture import ENDED, FAILED, IDLE, RANK_STATES, STARTS, new_mesh
from .program import WatchedProgram

UNKNOWN = "unknown"
"""The status of a moment of which no failure is known."""

_RANKS = Path(__file__).with_name("past_ranks.sql").read_text(encoding="utf-8")
_FAILURES = """
    SELECT node_id AS reference, failure_error_message AS message, failure_occurred_at AS occurred_us,
        coalesce(failure_root_cause_name, failure_root_cause_actor) AS root_cause, failure_is_propagated AS is_propagated
    FROM actor_failures WHERE failure_occurred_at <= {at} ORDER BY is_propagated, occurred_us
"""
# microseconds that the coarsest rows of `history` are apart, and a little more
_RECENTLY = 12_000_000
_SECONDS = 30.0

COLUMNS = ("state", "seconds", "queue", "rate", "pid", "host")
"""The columns of a mesh that are known of the past, among those of `picture`; `rate` is the number
of messages in a second.
"""


def as_of(program: WatchedProgram, at: float) -> dict[str, Any]:
    """Return the picture of a past time, as `picture` has it.

    Args:
        program: The program, or the file of a run.
        at: When, in seconds since 1970.
    """
    at_us = int(at * 1e6)
    query = partial(program.query, seconds=_SECONDS)
    found = query(_RANKS.format(at=at_us, recently=at_us - _RECENTLY))
    failures = query(_FAILURES.format(at=at_us)).rows
    hosts = list(dict.fromkeys(row["host"] for row in found.rows if row["host"] is not None))
    numbers = {host: number for number, host in enumerate(hosts)}
    meshes: dict[str, dict[str, Any]] = {}
    for row in found.rows:
        if row["uid"] not in meshes:
            meshes[row["uid"]] = new_mesh(
                row["mesh"], row["size"], sizes_of(row["shape"]) if row["shape"] else {}, COLUMNS
            )
        mesh = meshes[row["uid"]]
        state = _state(row)
        values = {
            "state": RANK_STATES.index(state) if state else None,
            "seconds": (at_us - row["begin"]) / 1e6 if row["begin"] is not None else None,
            **{name: row[name] for name in ("queue", "rate", "pid")},
            "host": numbers.get(row["host"]),
        }
        for name, value in values.items() if row["rank"] < mesh["size"] else ():
            mesh["columns"][name][row["rank"]] = value
    verdict = {
        "status": "stuck" if failures else UNKNOWN,
        "sentence": _sentence(at, found.rows, failures),
        "seconds": None,
    }
    lists: dict[str, list[Any]] = {
        name: [] for name in ("full", "frozen", "swapping", "circles", "blamed")
    }
    return {
        "at": at, "verdict": {**verdict, **lists}, "states": RANK_STATES, "hosts": hosts, "meshes": meshes, "failures": failures,
        "silent": found.silent,
    }  # fmt: skip


def _state(row: Mapping[str, Any]) -> str | None:
    """None: nothing is kept of it, or it was not there."""
    states = {"failed": FAILED, "ended": ENDED, "runs": RUNS, "starts": STARTS, "known": IDLE}
    for name, state in states.items():
        if row[name]:
            return state
    return None


def _sentence(
    at: float, rows: Sequence[Mapping[str, Any]], failures: Sequence[Mapping[str, Any]]
) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(at))
    if failures:
        more = f", and {len(failures) - 1} more" if len(failures) > 1 else ""
        return (
            f"{when}: {failures[0]['root_cause']} had failed{more}:"
            f" {failures[0]['message'].partition(chr(10))[0]}"
        )
    rows = [row for row in rows if row["mesh"] != "client"]
    busy = [row for row in rows if row["begin"] is not None]
    if not busy:
        known = any(row["known"] for row in rows)
        if known:
            return f"{when}: no rank handled a call that is kept."
        return f"{when}: nothing is kept of that time."
    longest = min(busy, key=lambda row: int(row["begin"]))
    seconds = at - longest["begin"] / 1e6
    return (
        f"{when}: {len(busy):,} of {len(rows):,} ranks handled a call; the longest, for"
        f" {seconds:.1f} s, was {longest['endpoint']} of {longest['mesh']}[{longest['rank']}]. No"
        " stacks are kept, so this is no verdict."
    )
