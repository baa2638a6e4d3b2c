"""A time that is over, as a file for ui.perfetto.dev: of what tables have kept of it.

See `profile` for one that begins now.

Clocks of hosts are taken as they are: by how much one is ahead is not known of the past.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from .._rank_selector import RankSelector
from .result import QueryResult
from .timeline import NEEDS, Row, Timeline, Window, draw

MOST_ROWS = 100_000
"""Rows of each table, at most: some 25 MB."""

# microseconds before the window in which something may have begun that lasts until then
_BEFORE = 60_000_000
_TIME = "timestamp_us >= {early} AND timestamp_us <= {until}"
_LASTING = ("messages", "spans", "torch_events")
_OF_PROC = {"spans": "process_id", "steps": "proc_id", "torch_events": "proc_id"}
_OF_ACTOR = {"messages": "to_actor_id", "sent_messages": "sender_actor_id"}
# of actors that are at it, and have begun long before, or with a message that was not kept
_OPEN = f"""
    SELECT 0 AS id, since_us AS timestamp_us, NULL AS from_actor_id, id AS to_actor_id, endpoint, NULL AS bytes, NULL AS duration_us,
        NULL AS call, 1 AS sample_weight
    FROM actors WHERE status = 'Processing' AND since_us <= {{until}} AND {{mine}}
        AND id NOT IN (SELECT to_actor_id FROM messages WHERE {_TIME} AND duration_us IS NULL)
"""


def trace(
    query: Callable[[str], QueryResult],
    since_us: int,
    until_us: int,
    mesh: str | None = None,
    rank: str | None = None,
) -> Timeline:
    """Make the file.

    Args:
        query: Answers SQL.
        since_us: Start, in microseconds since 1970; slices that began before it and reach into the
            window are included.
        until_us: Until then.
        mesh: Name or id of a mesh of procs; None: all.
        rank: Ranks of it, as `RankSelector` reads them; None: all.

    Raises:
        ValueError: There are no such ranks, or there is more than `MOST_ROWS` of one kind.
        QueryError: See `query`.
        TimeoutError: See `query`; or such ranks are not known, and a host did not answer.
    """
    if since_us >= until_us:
        raise ValueError(f"since is before until, not {(since_us - until_us) / 1e6:g} s behind it")
    early = since_us - max(_BEFORE, until_us - since_us)
    placed = query(f"SELECT {', '.join(NEEDS['procs'])}, mesh_id, coordinates_json FROM procs")
    procs: Sequence[Row] = placed.rows
    actors: Sequence[Row] = query(f"SELECT {', '.join(NEEDS['actors'])} FROM actors").rows
    if mesh is not None:
        try:
            procs = _chosen(procs, mesh, rank)
        except ValueError as error:
            if not placed.silent:
                raise
            silent = ", ".join(sorted(placed.silent))
            raise TimeoutError(f"{error}; {silent[:200]} did not answer") from None
        ids = {row["id"] for row in procs}
        actors = [row for row in actors if row["proc_id"] in ids]
    elif rank is not None:
        raise ValueError("ranks are those of a mesh: say which")
    tables: dict[str, Sequence[Row]] = {"procs": procs, "actors": actors}

    def among(column: str, rows: Sequence[Row]) -> str:
        if mesh is None:
            return "true"
        return f"{column} IN ({', '.join(str(row['id']) for row in rows) or 'NULL'})"

    for table in NEEDS.keys() - tables.keys():
        text = f"SELECT {', '.join(NEEDS[table])} FROM {table}"
        if table != "hosts":
            of_proc = table in _OF_PROC
            text += (
                f" WHERE {_TIME} AND"
                f" {among(_OF_PROC[table], procs) if of_proc else among(_OF_ACTOR[table], actors)}"
            )
        if table in _LASTING:
            text += f" AND coalesce(timestamp_us + duration_us >= {since_us}, true)"
        if table == "messages":
            text += f" UNION ALL {_OPEN}"
        found = query(
            f"{text} LIMIT {MOST_ROWS + 1}".format(
                early=early, until=until_us, mine=among("id", actors)
            )
        ).rows
        if len(found) > MOST_ROWS:
            raise ValueError(
                f"there are more than {MOST_ROWS:,} {table} in that time: choose a shorter one, or"
                " fewer ranks"
            )
        tables[table] = found
    hosts = {row["host_id"] for row in procs}
    tables["hosts"] = [row for row in tables["hosts"] if row["id"] in hosts]
    return draw(tables, Window(since_us, until_us, {}))


def _chosen(procs: Sequence[Row], mesh: str, rank: str | None) -> list[Row]:
    found = [row for row in procs if mesh in (row["mesh"], str(row["mesh_id"]))]
    if len({row["mesh_id"] for row in found}) != 1:
        several = f"several meshes are called {mesh!r}: name one by its id"
        raise ValueError(several if found else f"there is no mesh {mesh[:200]!r}")
    if rank is not None:
        selector = RankSelector(rank)
        found = [
            row
            for row in found
            if selector.matches(row["rank"], json.loads(row["coordinates_json"]))
        ]
        if not found:
            raise ValueError(f"{rank[:200]!r} selects no rank of {mesh[:200]!r}")
    return found
