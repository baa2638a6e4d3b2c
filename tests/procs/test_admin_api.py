"""The routes of Monarch 0.7's dashboard: each answers in the shape that programs of 0.7 read."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

import pytest

from helpers.admin import Asker
from helpers.demo import demo

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")  # here, as it starts threads
arro3 = pytest.importorskip("arro3.core")
arro3_io = pytest.importorskip("arro3.io")

ARROW = "application/vnd.apache.arrow.stream"

MESH = {
    "id": str, "timestamp_us": int, "class": str, "given_name": str, "full_name": str, "shape_json": str,
    "parent_mesh_id": (str, None), "parent_view_json": (str, None),
}  # fmt: skip
ONE_ACTOR = {
    "id": str, "timestamp_us": int, "mesh_id": str, "rank": int, "full_name": str, "display_name": (str, None),
    "latest_status": str, "status_timestamp_us": int,
}  # fmt: skip
MESSAGE = {
    "id": str, "timestamp_us": int, "from_actor_id": str, "to_actor_id": str, "endpoint": (str, None),
    "port_index": (int, None),
}  # fmt: skip
LIFECYCLE = {"queued": int, "active": int, "completed": int, "failed": int}
SHAPES: dict[str, Any] = {
    "/api/health": {"status": str},
    "/api/summary": {
        "mesh_counts": {"total": int},
        "hierarchy_counts": {"host_meshes": int, "proc_meshes": int, "actor_meshes": int},
        "actor_counts": {"total": int, "by_status": {}},
        "message_counts": {"total": int, "by_status": {}, "by_endpoint": {}, "delivery_rate": float},
        "errors": {"failed_actors": int, "stopped_actors": int, "failed_messages": int},
        "timeline": {
            "start_us": int, "end_us": int, "failure_onset_us": (int, None),
            "total_status_events": int, "total_message_events": int,
        },
        "health_score": int,
    },
    "/api/message-stats": {
        "lifecycle": LIFECYCLE, "endpoints": [{"endpoint": str, "total": int, "completed": int}], "pairs": [[str]],
    },
    "/api/message-activity": {"start_us": int, "end_us": int, "total": int, "buckets": [int]},
    "/api/dag?hide_system=true": {
        "nodes": [{"id": str, "entity_id": str, "tier": str, "label": str, "subtitle": str, "status": str}],
        "edges": [{"id": str, "source_id": str, "target_id": str, "type": str}],
        "snapshot_pending": bool, "snapshot_partial": bool, "resolution_error_count": int,
    },
    "/api/meshes": [MESH],
    "/api/meshes?class=Proc": [MESH],
    "/api/meshes/{mesh}": MESH,
    "/api/meshes/{mesh}/children": [MESH],
    "/api/actors": [{**ONE_ACTOR, "mesh_class": (str, None), "mesh_name": (str, None)}],
    "/api/actors?mesh_id={actors}": [ONE_ACTOR],
    "/api/actors/{actor}": ONE_ACTOR,
    "/api/actors/{actor}/status_events": [
        {"id": str, "timestamp_us": int, "actor_id": str, "new_status": str, "reason": (str, None)}
    ],
    "/api/actors/{actor}/messages": [MESSAGE],
    "/api/messages?to_actor_id={actor}": [MESSAGE],
    "/api/message_status_events": [{"id": str, "timestamp_us": int, "message_id": str, "status": str}],
    "/api/sent_messages": [
        {"id": str, "timestamp_us": int, "sender_actor_id": str, "actor_mesh_id": str, "view_json": str, "shape_json": str}
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def asker() -> Iterator[Asker]:
    with demo(16, "full-mailbox") as program:
        yield program.asker


@pytest.fixture(scope="module")
def ids(asker: Asker) -> Mapping[str, str]:
    """Of a mesh of procs, of the mesh of actors there, and of one of those."""
    mesh = next(
        row for row in asker.get("/api/meshes?class=Proc") if row["given_name"] == "trainers"
    )
    actors = asker.get(f"/api/meshes/{mesh['id']}/children")[0]
    return {
        "mesh": mesh["id"],
        "actors": actors["id"],
        "actor": asker.get(f"/api/actors?mesh_id={actors['id']}")[3]["id"],
    }


def misshapen(found: Any, wanted: Any, where: str = "") -> list[str]:
    """Where an answer has not the shape that is wanted.

    Lists have members, or nothing would be seen of their shape.
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        missing = [f"{where}.{name} is missing" for name in wanted.keys() - found.keys()]
        return missing + [
            line
            for name in wanted.keys() & found.keys()
            for line in misshapen(found[name], wanted[name], f"{where}.{name}")
        ]
    if isinstance(wanted, list) and isinstance(found, list):
        empty = [] if found else [f"{where} is empty"]
        return empty + [line for each in found for line in misshapen(each, wanted[0], f"{where}[]")]
    kinds = wanted if isinstance(wanted, tuple) else (wanted,)
    return [] if type(found) in kinds or found in kinds else [f"{where} is {found!r:.80}"]


@pytest.mark.parametrize("path", SHAPES)
def test_an_answer_has_the_shape_of_0_7(asker: Asker, ids: Mapping[str, str], path: str) -> None:
    assert misshapen(asker.get(path.format(**ids)), SHAPES[path]) == []


def test_ids_that_are_given_choose(asker: Asker, ids: Mapping[str, str]) -> None:
    assert asker.get(f"/api/meshes/{ids['mesh']}")["given_name"] == "trainers"
    actor = asker.get(f"/api/actors/{ids['actor']}")
    assert actor["id"] == ids["actor"] and actor["latest_status"] == actor["latest_status"].lower()
    assert {row["mesh_id"] for row in asker.get(f"/api/actors?mesh_id={ids['actors']}")} == {
        ids["actors"]
    }
    assert {
        row["to_actor_id"] for row in asker.get(f"/api/messages?to_actor_id={ids['actor']}")
    } == {ids["actor"]}
    events = asker.get(f"/api/actors/{ids['actor']}/messages")
    assert len(events) <= 200 and all(
        ids["actor"] in (row["from_actor_id"], row["to_actor_id"]) for row in events
    )
    assert "Proc" not in {
        row["class"] for row in asker.get("/api/meshes?exclude_classes=Proc,Host")
    }


def test_sums_agree_with_the_tables(asker: Asker) -> None:
    summary, meshes, actors = (
        asker.get(f"/api/{name}") for name in ("summary", "meshes", "actors")
    )
    assert (
        summary["mesh_counts"]["total"] == len(meshes) == sum(summary["hierarchy_counts"].values())
    )
    assert (
        summary["actor_counts"]["total"]
        == len(actors)
        == sum(summary["actor_counts"]["by_status"].values())
    )
    assert 0 < summary["health_score"] <= 100
    activity = asker.get("/api/message-activity")
    assert len(activity["buckets"]) == 44 and sum(activity["buckets"]) == activity["total"] > 0


def test_the_graph_is_of_hosts_procs_and_actors_and_their_messages(
    asker: Asker, ids: Mapping[str, str]
) -> None:
    graph = asker.get("/api/dag")
    nodes = {node["id"]: node for node in graph["nodes"]}
    tiers = {
        (nodes[edge["source_id"]]["tier"], nodes[edge["target_id"]]["tier"], edge["type"])
        for edge in graph["edges"]
    }
    assert tiers == {
        ("host", "proc", "hierarchy"),
        ("proc", "actor", "hierarchy"),
        ("actor", "actor", "message"),
    }
    assert ids["actor"] in {node.get("telemetry_actor_id") for node in nodes.values()}
    assert all(node["id"] == f"{node['tier']}-{node['entity_id']}" for node in nodes.values())


def test_sql_is_answered_with_numbers_and_errors_are_texts(
    asker: Asker, ids: Mapping[str, str]
) -> None:
    rows = asker.post("/api/query", {"sql": f"SELECT id FROM actors WHERE id = {ids['actor']}"})[
        "rows"
    ]
    assert rows == [{"id": int(ids["actor"])}]
    for body in ({}, {"sql": "SELEC"}):
        status, content = asker.raw("POST", "/api/query", body)
        assert status == 400 and isinstance(json.loads(content)["error"], str)
    for path, error in (("/api/meshes/1", "mesh not found"), ("/api/actors/1", "actor not found")):
        status, content = asker.raw("GET", path)
        assert (status, json.loads(content)) == (404, {"error": error, "code": "not_found"})
    assert asker.raw("GET", f"/api/messages?to_actor_id={quote('1 OR true')}")[0] == 400


def test_each_filter_leaves_what_it_names(asker: Asker, ids: Mapping[str, str]) -> None:
    for path in (f"meshes?parent_mesh_id={ids['mesh']}", f"meshes/{ids['mesh']}/children"):
        assert ids["actors"] in {row["id"] for row in asker.get(f"/api/{path}")}
    own = asker.get(f"/api/meshes/{ids['actors']}")["class"]
    children = f"/api/meshes/{ids['mesh']}/children"
    assert {row["class"] for row in asker.get(f"{children}?mesh_class={own}")} == {own}
    assert own not in {row["class"] for row in asker.get(f"{children}?exclude_classes={own}")}
    for table, column, name in (
        ("messages", "from_actor_id", "from_actor_id"),
        ("message_status_events", "message_id", "message_id"),
        ("sent_messages", "sender_actor_id", "sender_actor_id"),
    ):
        wanted = asker.get(f"/api/{table}")[0][column]
        found = asker.get(f"/api/{table}?{name}={wanted}")
        assert found and {row[column] for row in found} == {wanted}


def test_the_score_of_health_is_the_mean_over_statuses(asker: Asker) -> None:
    scores = {
        "idle": 100,
        "processing": 80,
        "client": 50,
        "unknown": 50,
        "stopped": 20,
        "failed": 0,
    }
    summary = asker.get("/api/summary")
    each = [
        scores.get(status, 30)
        for status, many in summary["actor_counts"]["by_status"].items()
        for _ in range(many)
    ]
    assert summary["health_score"] == round(sum(each) / len(each))


def test_an_answer_to_sql_is_a_stream_of_arrow_for_who_accepts_that(
    asker: Asker, ids: Mapping[str, str]
) -> None:
    sql = {"sql": f"SELECT id, rank, display_name FROM actors WHERE mesh_id = {ids['actors']}"}
    with asker.open("POST", "/api/query", sql, {"Accept": ARROW}) as answer:
        assert answer.status == 200 and answer.headers.get_content_type() == ARROW
        table = read(answer.read())
    assert table.column_names == ["id", "rank", "display_name"]
    found = [
        dict(zip(table.column_names, row, strict=True))
        for row in zip(*(column.to_pylist() for column in table.columns), strict=True)
    ]
    by_rank = sorted(found, key=lambda row: int(row["rank"]))
    assert by_rank == sorted(
        asker.post("/api/query", sql)["rows"], key=lambda row: int(row["rank"])
    )
    status, content = asker.raw("POST", "/api/query", {"sql": "SELEC"}, {"Accept": ARROW})
    assert status == 400 and isinstance(json.loads(content)["error"], str)


def test_a_snapshot_that_is_sent_is_found_by_sql_beside_the_present_one(asker: Asker) -> None:
    sent: dict[str, dict[str, list[Any]]] = {
        "snapshots": {"snapshot_id": ["s1"], "snapshot_ts": [17]},
        "nodes": {
            "snapshot_id": ["s1", "s1"], "node_id": ["root", "host:a"], "node_kind": ["root", "host"], "as_of": [17, 17],
        },
        "resolution_errors": {
            "snapshot_id": ["s1"], "node_id": ["b"], "error_code": ["not_found"], "error_message": ["b has gone"],
        },
    }  # fmt: skip
    for name, columns in sent.items():
        assert ingest(asker, name, columns) == (200, {"status": "ok"})
    rows = asker.post(
        "/api/query",
        {
            "sql": "SELECT node_id, snapshot_ts FROM nodes JOIN snapshots USING (snapshot_id)"
            " WHERE snapshot_id = 's1' ORDER BY ALL"
        },
    )["rows"]
    assert [row["node_id"] for row in rows] == ["host:a", "root"]
    assert {row["snapshot_ts"] for row in rows} == {17}
    ids = asker.post("/v1/query", {"sql": "SELECT DISTINCT snapshot_id FROM nodes ORDER BY ALL"})
    assert [row["snapshot_id"] for row in ids["rows"]] == ["now", "s1"]
    errors = asker.post("/api/query", {"sql": "SELECT error_message FROM resolution_errors"})
    assert errors["rows"] == [{"error_message": "b has gone"}] and errors["silent"] == {}
    assert "host:a" not in asker.raw("GET", "/v1/tree")[1].decode()  # which is of now


def test_what_is_no_snapshot_is_refused(asker: Asker) -> None:
    moment: dict[str, list[Any]] = {"snapshot_id": ["s2"], "snapshot_ts": [1]}
    status, answer = ingest(asker, "actors", moment)
    assert status == 400 and "no table of snapshots" in answer["error"]
    unfit: list[tuple[dict[str, list[Any]], str]] = [
        ({"snapshot_id": ["s2"]}, "NOT NULL"),
        ({**moment, "more": [1]}, "more"),
        ({**moment, "snapshot_ts": ["late"]}, "late"),
    ]
    for columns, said in unfit:
        status, answer = ingest(asker, "snapshots", columns)
        assert status == 400 and said in answer["error"]
    headers = {"Content-Type": ARROW}
    for stream in (b"", b"no stream at all", written(moment)[:200]):
        status, content = asker.raw("POST", "/api/ingest_snapshot/snapshots", stream, headers)
        assert status == 400 and "stream" in json.loads(content)["error"]
    assert asker.raw("POST", "/api/ingest_snapshot/snapshots", moment)[0] == 415
    ids = asker.post("/api/query", {"sql": "SELECT snapshot_id FROM snapshots"})["rows"]
    assert {"snapshot_id": "s2"} not in ids


def ingest(asker: Asker, table: str, columns: Mapping[str, list[Any]]) -> tuple[int, Any]:
    status, content = asker.raw(
        "POST", f"/api/ingest_snapshot/{table}", written(columns), {"Content-Type": ARROW}
    )
    return status, json.loads(content)


def written(columns: Mapping[str, list[Any]]) -> bytes:
    """The stream of a table."""
    kinds = {str: arro3.DataType.utf8(), int: arro3.DataType.int64()}
    arrays = [arro3.Array(values, type=kinds[type(values[0])]) for values in columns.values()]
    stream = io.BytesIO()
    arro3_io.write_ipc_stream(arro3.Table.from_arrays(arrays, names=list(columns)), stream)
    return stream.getvalue()


def read(stream: bytes) -> Any:
    return arro3.Table.from_arrow(arro3_io.read_ipc_stream(io.BytesIO(stream)))


def test_a_dump_of_py_spy_is_taken_and_kept(asker: Asker) -> None:
    proc = next(
        node["entity_id"] for node in asker.get("/api/dag")["nodes"] if node["tier"] == "proc"
    )
    found = asker.post("/api/pyspy/capture", {"proc_ref": proc})
    assert found["proc_ref"] == proc and len(found["result"]) == 1
    dump = {"dump_id": "mine", "proc_ref": proc, "pyspy_result_json": json.dumps(found["result"])}
    assert asker.post("/api/pyspy_dump", dump) == {"status": "ok"}
    assert asker.get("/v1/pyspy_dumps/mine")["proc_ref"] == proc
