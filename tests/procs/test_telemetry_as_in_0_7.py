"""Rows of tables as programs for Monarch 0.7 read them: what was stopped, shapes, signs, stacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo
from helpers.tables import rows
from helpers.workers import workers
from monarch.actor import Actor, attach_to_workers, endpoint, get_meter
from monarch.programs import Connection
from monarch.telemetry import QueryEngineClient

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("telemetry of several processes")

RESULT = {
    "pid": 4711, "binary": "/usr/bin/py-spy", "capture_mode": "native_all", "warnings": ["slow"],
    "stack_traces": [
        {
            "pid": 4711, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 4711, "active": True, "owns_gil": True,
            "frames": [
                {
                    "name": "step", "filename": "/train.py", "module": None, "short_filename": "train.py", "line": 7,
                    "locals": None, "is_entry": True,
                }
            ],
        }
    ],
}  # fmt: skip


class Counts(Actor):
    @endpoint
    def count(self) -> None:
        get_meter().create_counter("rises").add(3)
        get_meter().create_counter("rises_in_parts").add(0.5)
        get_meter().create_up_down_counter("moves").add(-2)


def test_actors_of_procs_that_were_stopped_stay_as_stopped(spawn: Spawn) -> None:
    procs = spawn({"gpus": 2}, name="trainers")
    procs.spawn("learner", Echo).pid.call().get()
    before = {row["id"]: row for row in rows("actors") if row["name"] == "learner"}
    procs.stop().get()
    after = {row["id"]: row for row in rows("actors") if row["name"] == "learner"}
    assert len(before) == 2 and before.keys() == after.keys()
    kept = "mesh_id", "rank", "full_name", "class", "proc_id"
    for number, row in after.items():
        assert row["status"] == "Stopped" and row["pid"] == 0
        assert [row[name] for name in kept] == [before[number][name] for name in kept]
    [mesh] = {row["mesh_id"] for row in after.values()}
    assert mesh in {row["id"] for row in rows("meshes")}


def test_shapes_are_written_as_0_7_writes_them(spawn: Spawn) -> None:
    spawn({"replicas": 2, "gpus": 3}, name="shaped").spawn("shown", Echo).pid.call().get()
    [actors] = [row for row in rows("meshes") if row["given_name"] == "shown"]
    assert json.loads(actors["shape_json"]) == {
        "inner": {"labels": ["replicas", "gpus"], "sizes": [2, 3]}
    }
    assert json.loads(actors["parent_view_json"]) == {
        "labels": ["replicas", "gpus"],
        "slice": {"offset": 0, "sizes": [2, 3], "strides": [3, 1]},
    }
    [procs] = [row for row in rows("meshes") if row["given_name"] == "shaped"]
    assert json.loads(procs["parent_view_json"])["slice"]["sizes"] == [1]


def test_counters_fill_the_column_of_their_sign_and_that_of_their_type(spawn: Spawn) -> None:
    spawn(1).spawn("counts", Counts).count.call().get()
    found = {row["name"]: row for row in rows("metric_sums")}

    def sums(name: str) -> list[Any]:
        return [found[name][f"sum_{kind}"] for kind in ("f64", "i64", "u64")]

    assert sums("rises") == [None, 3, 3]
    assert sums("rises_in_parts") == [0.5, None, None]
    assert sums("moves") == [None, -2, None]


def test_a_dump_of_py_spy_that_was_stored_is_in_its_tables(spawn: Spawn) -> None:
    elsewhere = Connection.__new__(Connection)
    client = QueryEngineClient()
    assert client.store_pyspy_dump("mine", "proc@host", json.dumps({"Ok": RESULT})) == {
        "status": "ok"
    }
    client.store_pyspy_dump("none", "proc@host", json.dumps({"BinaryNotFound": {"searched": []}}))
    [dump] = [row for row in rows("pyspy_dumps") if row["proc_ref"] == "proc@host"]
    assert (dump["dump_id"], dump["pid"], dump["binary"]) == ("mine", 4711, "/usr/bin/py-spy")
    assert dump["capture_mode"] == "native_all" and json.loads(dump["warnings_json"]) == ["slow"]
    [frame] = [row for row in rows("pyspy_frames") if row["dump_id"] == "mine"]
    assert (frame["name"], frame["line"], frame["is_entry"]) == ("step", 7, True)
    [thread] = [row for row in rows("pyspy_stack_traces") if row["dump_id"] == "mine"]
    assert thread["thread_name"] == "MainThread" and thread["owns_gil"]
    with pytest.raises(ValueError, match=r"the dump 'bad' is no answer of py-spy.*stack_traces"):
        client.store_pyspy_dump("bad", "proc@host", '{"Ok": {"pid": 1}}')
    with pytest.raises(ValueError, match=r"asks another program, or a file.*QueryEngineClient\(\)"):
        QueryEngineClient(elsewhere).store_pyspy_dump("x", "y", "{}")


def test_a_host_mesh_is_a_row_with_its_own_name_until_it_is_let_go(spawn: Spawn) -> None:
    def named() -> list[dict[str, Any]]:
        return [row for row in rows("meshes") if row["given_name"] == "pretrainers"]

    with workers(1) as found:
        hosts = attach_to_workers(workers=found.addresses, name="pretrainers")
        [row] = named()
        assert row["class"] == "Host"
        assert json.loads(row["shape_json"]) == {"inner": {"labels": ["hosts"], "sizes": [1]}}
        hosts.stop().get()
        assert not named()
