"""The routes of Monarch 0.7's dashboard, for programs that call them.

Made of the tables that all else is made of.

Ids are texts, but in answers to SQL. Answers that need no parameters are kept for two seconds, for
others who ask.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from . import arrow
from .child import ask
from .keys import ACT
from .program import WatchedProgram
from .routes import ApiCall, ApiError, Field, Page, route
from .tree import ROOT, with_texts

BUCKETS = 44
"""Of the activity of messages."""

_LATEST = 200  # events of an actor
_HEALTH = {"idle": 100, "processing": 80, "client": 50, "unknown": 50, "stopped": 20, "failed": 0}
_STARTS_OR_ENDS = 30  # health of other statuses: created, initializing, saving, loading, stopping
_MOST_ROWS = 10_000  # of messages, where nothing else bounds them

_MESHES = "SELECT DISTINCT ON (id, class) * FROM meshes ORDER BY timestamp_us, id, class"
_ACTORS = """
    SELECT a.*, m.class AS mesh_class, m.given_name AS mesh_name, lower(a.status) AS latest_status,
        greatest(a.timestamp_us, e.timestamp_us, a.since_us) AS status_timestamp_us
    FROM actors a LEFT JOIN (SELECT id, any_value(class) AS class, any_value(given_name) AS given_name FROM meshes GROUP BY id) m
        ON m.id = a.mesh_id
    LEFT JOIN (SELECT actor_id, max(timestamp_us) AS timestamp_us FROM actor_status_events GROUP BY actor_id) e ON e.actor_id = a.id
    ORDER BY a.timestamp_us, a.id
"""
_ENDPOINTS = """
    SELECT endpoint, sum(count)::BIGINT AS total, sum(count - failed)::BIGINT AS completed
    FROM handled GROUP BY endpoint ORDER BY total DESC, endpoint
"""
_TIMES = """
    SELECT min(timestamp_us) AS start_us, max(timestamp_us) AS end_us, min(timestamp_us) FILTER (failed) AS failure_onset_us,
        count(*) FILTER (is_status) AS total_status_events, count(*) FILTER (NOT is_status) AS total_message_events
    FROM (SELECT timestamp_us, new_status = 'Failed' AS failed, true AS is_status FROM actor_status_events
        UNION ALL SELECT timestamp_us, false, false FROM message_status_events)
"""
_PAIRS = "SELECT DISTINCT from_actor_id, to_actor_id FROM messages ORDER BY ALL"
_ACTIVITY = f"""
    WITH times AS (SELECT min(timestamp_us) AS first, max(timestamp_us) AS last FROM messages)
    SELECT first, last, least((timestamp_us - first) * {BUCKETS} // greatest(last - first, 1), {BUCKETS - 1}) AS bucket,
        sum(sample_weight)::BIGINT AS many
    FROM messages, times GROUP BY ALL
"""


@route("GET", "/api/health", seconds=0)
def _health(call: ApiCall) -> Any:
    """A sign that this server answers."""
    return {"status": "ok"}


@route("GET", "/api/summary", sql=True)
def _summary(call: ApiCall) -> Any:
    """Counts of meshes, actors and messages, failures, and a score from 0 to 100."""
    return call.program.shared("summary", lambda: _summed(call.program))


@route("GET", "/api/message-stats", sql=True)
def _message_stats(call: ApiCall) -> Any:
    """How many messages are queued, active, completed, failed; by endpoint; senders and receivers."""
    program = call.program

    def look() -> Any:
        endpoints = program.query(_ENDPOINTS).rows
        pairs = [[str(actor) for actor in row.values()] for row in program.query(_PAIRS).rows]
        return {
            "lifecycle": _lifecycle(_shared(program, _ACTORS), endpoints),
            "endpoints": endpoints,
            "pairs": pairs,
        }

    return program.shared("message-stats", look)


@route("GET", "/api/message-activity", sql=True)
def _message_activity(call: ApiCall) -> Any:
    """How many messages came, in 44 equal parts of the time that is remembered."""

    def look() -> Any:
        rows = call.program.query(_ACTIVITY).rows
        many = {row["bucket"]: row["many"] for row in rows}
        start, end = (rows[0]["first"], rows[0]["last"]) if rows else (None, None)
        return {
            "start_us": start, "end_us": end, "total": sum(many.values()), "buckets": [many.get(at, 0) for at in range(BUCKETS)]
        }  # fmt: skip

    return call.program.shared("message-activity", look)


@route(
    "GET",
    "/api/dag",
    seconds="mesh_admin_tree_timeout",
    fields={"hide_system": Field("boolean", "Changes nothing: no node here is of Monarch's own")},
    sql=True,
)
def _dag(call: ApiCall) -> Any:
    """Hosts, procs and actors as nodes, with edges between them.

    An edge leads from owner to owned, or from sender to receiver.
    """
    call.flag("hide_system")
    return call.program.shared("dag", lambda: _graph(call.program))


_EXCLUDED = Field("string", "Classes that are not wanted, with commas between")


@route(
    "GET",
    "/api/meshes",
    fields={
        "class": Field("string", "Host, Proc, or a class of actors"),
        "parent_mesh_id": Field("string", "Those that are made of this mesh"),
        "exclude_classes": _EXCLUDED,
    },
    sql=True,
)
def _all_meshes(call: ApiCall) -> Any:
    """Rows of the table of meshes."""
    return _chosen(
        call, _shared(call.program, _MESHES), {"class": "class", "parent_mesh_id": "parent_mesh_id"}
    )


@route("GET", "/api/meshes/{id}", sql=True)
def _mesh(call: ApiCall) -> Any:
    """A mesh, by its id."""
    return _one(call, _shared(call.program, _MESHES), "mesh")


@route(
    "GET",
    "/api/meshes/{id}/children",
    fields={
        "mesh_class": Field("string", "Only those of this class"),
        "exclude_classes": _EXCLUDED,
    },
    sql=True,
)
def _children(call: ApiCall) -> Any:
    """The meshes that are made of one."""
    found = [
        row for row in _shared(call.program, _MESHES) if row["parent_mesh_id"] == call.path["id"]
    ]
    return _chosen(call, found, {"mesh_class": "class"})


@route(
    "GET", "/api/actors", fields={"mesh_id": Field("string", "Only those of this mesh")}, sql=True
)
def _all_actors(call: ApiCall) -> Any:
    """Rows of the table of actors, with status and mesh."""
    return _chosen(call, _shared(call.program, _ACTORS), {"mesh_id": "mesh_id"})


@route("GET", "/api/actors/{id}", sql=True)
def _actor(call: ApiCall) -> Any:
    """An actor, by its id."""
    return _one(call, _shared(call.program, _ACTORS), "actor")


@route("GET", "/api/actors/{id}/status_events", sql=True)
def _status_events(call: ApiCall) -> Any:
    """The life of an actor; the latest 200 events, the last one first."""
    return _rows(call, "actor_status_events", f"actor_id = {_id(call.path['id'])}", _LATEST)


@route("GET", "/api/actors/{id}/messages", sql=True)
def _messages_of(call: ApiCall) -> Any:
    """The messages that an actor has sent and received.

    The latest 200 messages that are remembered, the last one first.
    """
    actor = _id(call.path["id"])
    return _rows(call, "messages", f"(from_actor_id = {actor} OR to_actor_id = {actor})", _LATEST)


def _latest(table: str, columns: tuple[str, ...], call: ApiCall) -> Any:
    return _rows(call, table, _where(call, *columns))


def _remembered(table: str, about: str, **columns: str) -> None:
    """Add the route of a table's latest rows; each column, with what it says, chooses some."""
    handler: Any = partial(_latest, table, (*columns,))  # which a process for SQL can be sent
    handler.__doc__ = f"{about}, the last one first; 10,000 at most."
    fields = {name: Field("string", said) for name, said in columns.items()}
    route("GET", f"/api/{table}", fields=fields, sql=True)(handler)


_remembered(
    "messages", "Messages that are remembered",
    from_actor_id="Who has sent them", to_actor_id="Who gets them",
)  # fmt: skip
_remembered("message_status_events", "The events of messages", message_id="Of this message")
_remembered("sent_messages", "Calls as they were sent", sender_actor_id="Who has sent them")


@route(
    "POST",
    "/api/query",
    fields={"sql": Field("string", "One statement that reads", required=True)},
    sql=True,
)
def _query(call: ApiCall) -> Any:
    """Rows that SQL finds, as `/v1/query` does, or a stream of Arrow's if `Accept` says so.

    Ids are numbers.
    """
    found = call.program.query(call.text("sql"), call.role)
    if arrow.MEDIA in call.accept:
        return Page(arrow.encode(found.arrow()), arrow.MEDIA)
    return {"rows": found.rows, "silent": found.silent, "left_out": found.left_out}


_PROC_REF = Field("string", "Of a proc, as `/v1/root` leads to it", required=True)


@route("POST", "/api/pyspy/capture", role=ACT, seconds=30.0, fields={"proc_ref": _PROC_REF})
def _capture(call: ApiCall) -> Any:
    """A dump by py-spy of a process."""
    proc = call.text("proc_ref")
    return {"proc_ref": proc, "result": call.program.py_spy(proc)}


@route(
    "POST",
    "/api/pyspy_dump",
    role=ACT,
    seconds=0,
    fields={
        "dump_id": Field("string", "Its name", required=True),
        "proc_ref": _PROC_REF,
        "pyspy_result_json": Field("string", "What py-spy has said", required=True),
    },
)
def _keep(call: ApiCall) -> Any:
    """Keep a dump of py-spy, for `/v1/pyspy_dumps/{id}`."""
    dump = {"proc_ref": call.text("proc_ref"), "result": call.text("pyspy_result_json")}
    call.program.keep_dump(call.text("dump_id"), dump)
    return {"status": "ok"}


@route("POST", "/api/ingest_snapshot/{table}", role=ACT, seconds=0, takes=arrow.MEDIA)
def _ingest(call: ApiCall) -> Any:
    """Keep rows of a snapshot of the tree, for queries here."""
    call.program.ingest(partial(ask, arrow.read, call.path["table"], call.content))
    return {"status": "ok"}


def _shared(program: WatchedProgram, statement: str) -> list[dict[str, Any]]:
    """Return what a query finds: requests that come at the same time share the answer."""
    found: list[dict[str, Any]] = program.shared(
        statement, lambda: [with_texts(row) for row in program.query(statement).rows]
    )
    return found


def _chosen(
    call: ApiCall, rows: Iterable[dict[str, Any]], filters: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Rows that have what the query wants: the columns by its names."""
    wanted = {column: call.query[name] for name, column in filters.items() if name in call.query}
    excluded = call.query.get("exclude_classes", "").split(",")
    return [
        row for row in rows
        if all(row[column] == value for column, value in wanted.items()) and row.get("class") not in excluded
    ]  # fmt: skip


def _one(call: ApiCall, rows: Iterable[dict[str, Any]], kind: str) -> dict[str, Any]:
    for row in rows:
        if row["id"] == call.path["id"]:
            return row
    raise ApiError("not_found", f"{kind} not found")


def _rows(call: ApiCall, table: str, where: str, most: int = _MOST_ROWS) -> list[dict[str, Any]]:
    sql = f"SELECT * FROM {table} WHERE {where} ORDER BY timestamp_us DESC, id LIMIT {most}"
    return [with_texts(row) for row in call.program.query(sql).rows]


def _where(call: ApiCall, *names: str) -> str:
    return (
        " AND ".join(f"{name} = {_id(call.query[name])}" for name in names if name in call.query)
        or "true"
    )


def _id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise ApiError("bad_request", f"an id is a whole number, not {text[:80]!r}")
    return int(text)


def _lifecycle(
    actors: Sequence[Mapping[str, Any]], endpoints: Sequence[Mapping[str, Any]]
) -> dict[str, int]:
    """Exact: what waits and is handled now, and what each actor has counted."""
    completed = sum(row["completed"] for row in endpoints)
    return {
        "queued": sum(row["queue_depth"] for row in actors),
        "active": sum(row["latest_status"] == "processing" for row in actors),
        "completed": completed,
        "failed": sum(row["total"] for row in endpoints) - completed,
    }


def _summed(program: WatchedProgram) -> dict[str, Any]:
    meshes, actors, endpoints = (
        _shared(program, _MESHES),
        _shared(program, _ACTORS),
        program.query(_ENDPOINTS).rows,
    )
    [times] = program.query(_TIMES).rows
    kinds = Counter(row["class"] if row["class"] in ("Host", "Proc") else "" for row in meshes)
    statuses = Counter(row["latest_status"] for row in actors)
    life = _lifecycle(actors, endpoints)
    by_status = {"complete" if name == "completed" else name: many for name, many in life.items()}
    total = sum(life.values())
    scores = sum(_HEALTH.get(status, _STARTS_OR_ENDS) * many for status, many in statuses.items())
    return {
        "mesh_counts": {"total": len(meshes)},
        "hierarchy_counts": {
            "host_meshes": kinds["Host"],
            "proc_meshes": kinds["Proc"],
            "actor_meshes": kinds[""],
        },
        "actor_counts": {"total": len(actors), "by_status": dict(statuses)},
        "message_counts": {
            "total": total,
            "by_status": by_status,
            "by_endpoint": {row["endpoint"]: row["total"] for row in endpoints},
            "delivery_rate": life["completed"] / total if total else 1.0,
        },
        "errors": {
            "failed_actors": statuses["failed"],
            "stopped_actors": statuses["stopped"],
            "failed_messages": life["failed"],
        },
        "timeline": times,
        "health_score": round(scores / len(actors)) if actors else 100,
    }


def _graph(program: WatchedProgram) -> dict[str, Any]:
    tree = program.tree.get()
    nodes: dict[str, dict[str, Any]] = {}
    edges: list[tuple[str, str, str]] = []
    by_id: dict[int, str] = {}
    for reference in tree.references:
        node = tree.find(reference)
        [(kind, properties)] = node["properties"].items()
        if kind not in ("Host", "Proc", "Actor"):
            continue
        row, tier = tree.row(reference), kind.lower()
        made = nodes[reference] = {
            "id": f"{tier}-{reference}",
            "entity_id": reference,
            "tier": tier,
            "label": tree.label(reference),
            "subtitle": (
                properties.get("addr")
                or properties.get("proc_name")
                or properties.get("actor_type")
            ),
            "status": _status(kind, properties),
        }
        if kind == "Actor" and row:
            by_id[row["id"]] = made["id"]
            made["telemetry_actor_id"] = str(row["id"])
        if kind == "Proc":
            made["mesh_name"] = row["mesh"]
        if node["parent"] not in (ROOT, None):
            edges.append(("hierarchy", node["parent"], reference))
    linked = [
        (kind, nodes[source]["id"], nodes[target]["id"])
        for kind, source, target in edges
        if source in nodes
    ]
    for pair in program.query(_PAIRS).rows:
        source, target = by_id.get(pair["from_actor_id"]), by_id.get(pair["to_actor_id"])
        if source and target:
            linked.append(("message", source, target))
    return {
        "nodes": list(nodes.values()),
        "edges": [
            {
                "id": f"{kind}-{source}-{target}",
                "source_id": source,
                "target_id": target,
                "type": kind,
            }
            for kind, source, target in linked
        ],
        "snapshot_pending": False,
        "snapshot_partial": bool(tree.silent),
        "resolution_error_count": len(tree.silent),
    }


def _status(kind: str, properties: Mapping[str, Any]) -> str:
    if kind == "Actor":
        return str(properties["actor_status"]).partition(":")[0].lower()
    if kind == "Proc" and properties["is_poisoned"]:
        return "failed"
    return "stopping" if kind == "Proc" and properties["failed_actor_count"] else "idle"
