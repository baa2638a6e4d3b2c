"""The admin interface of a program that runs, asked over HTTP."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from helpers.admin import Asker, admin_of
from helpers.certificates import authority
from helpers.terminals import RunningProgram, running
from monarch.admin.door import Door

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")  # here, as it starts threads
pytest.importorskip("arro3.core")

PROGRAM = """
    import os, sys, threading
    from monarch.actor import Actor, endpoint, this_host

    class Trainer(Actor):
        @endpoint
        def pid(self):
            return os.getpid()

        @endpoint
        def ask(self, other):
            return other.late.call_one().get()

    class Late(Actor):
        @endpoint
        def late(self):
            while not os.path.exists(sys.argv[0] + ".go"):
                threading.Event().wait(0.05)

    if __name__ == "__main__":
        trainers = this_host().spawn_procs({"gpus": 3}, name="trainers").spawn("trainer", Trainer)
        late = this_host().spawn_procs(name="slow").spawn("late", Late)
        waiting = trainers.slice(gpus=1).ask.call_one(late)
        print("go", *trainers.slice(gpus=0).pid.call().get().values(), flush=True)
        sys.stdin.read()
    """


class Seen:
    """A program and who asks it."""

    def __init__(self, program: RunningProgram, asker: Asker, url: str, view_token: str) -> None:
        self.program = program
        self.asker = asker
        self.url = url
        self.view_token = view_token


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder: Path = tmp_path_factory.mktemp("admin")
    with running(PROGRAM, folder) as program:
        program.wait_for("go")
        with admin_of(program.pid) as (door, asker):
            # each process has been asked: there are connections from now on
            asker.get("/v1/stacks")
            for node in asker.walk():
                if "Proc" in node["properties"]:
                    asker.get(f"/v1/config/{quote(node['identity'])}")
            asker.get("/v1/why")
            yield Seen(program, asker, door.url, door.access("view")["token"])
        (folder / "train.py.go").touch()


def test_the_tree_is_walked_by_references(seen: Seen) -> None:
    nodes = list(seen.asker.walk())
    kinds = [next(iter(node["properties"])) for node in nodes]
    assert kinds[0] == "Root" and kinds.count("Host") == 1
    procs = [
        node["properties"]["Proc"]["mesh_rank"] for node in nodes if "Proc" in node["properties"]
    ]
    assert {"client", "trainers[0]", "trainers[1]", "trainers[2]", "slow[0]"} <= set(procs)
    by_reference = {node["identity"]: node for node in nodes}
    assert all(
        by_reference[child]["parent"] == node["identity"]
        for node in nodes
        for child in node["children"]
    )
    [late] = [node for node in nodes if node["identity"].startswith("late<")]
    actor = late["properties"]["Actor"]
    assert actor["actor_status"] == "processing: late" and actor["execution"]["active_count"] == 1
    assert actor["actor_type"] == "__main__.Late" and actor["created_at"].endswith("Z")


def test_nodes_have_what_their_schema_says(seen: Seen) -> None:
    schema = seen.asker.get("/v1/schema")
    kinds = {
        next(iter(each["properties"])): each for each in schema["properties"]["properties"]["oneOf"]
    }
    seen_kinds = set()
    for node in seen.asker.walk():
        assert set(node) == set(schema["required"])
        [(kind, properties)] = node["properties"].items()
        wanted = kinds[kind]["properties"][kind]
        assert set(wanted["required"]) <= set(properties) <= set(wanted["properties"])
        seen_kinds.add(kind)
    assert seen_kinds == {"Root", "Host", "Proc", "Actor"}
    assert set(seen.asker.get("/v1/admin")) == set(seen.asker.get("/v1/schema/admin")["required"])


def test_the_tree_is_drawn_with_the_url_of_each_node(seen: Seen) -> None:
    status, text = seen.asker.raw("GET", "/v1/tree")
    lines = text.decode().splitlines()
    assert status == 200 and lines[0] == f"root  ->  {seen.url}/v1/root"
    [line] = [line for line in lines if "── trainers[1]  ->" in line]
    url = line.partition("->  ")[2]
    assert seen.asker.get(url.removeprefix(seen.url))["properties"]["Proc"]["num_actors"] == 1


@pytest.mark.parametrize(
    ("reference", "said"),
    [("nobody", "it has no '@'"), ("a@b", "there is no 'a@b'"), ("host%3Aa@b", "there is no")],
)
def test_a_reference_that_there_is_not_is_not_found(seen: Seen, reference: str, said: str) -> None:
    status, code, message = seen.asker.error("GET", f"/v1/{reference}")
    assert (status, code) == (404, "not_found") and said in message


def proc_of(asker: Asker, name: str) -> str:
    return next(
        str(node["identity"])
        for node in asker.walk()
        if node["properties"].get("Proc", {}).get("mesh_rank") == name
    ).replace("@", "%40")  # fmt: skip


def test_the_configuration_of_a_process_says_where_values_are_from(seen: Seen) -> None:
    entries = seen.asker.get(f"/v1/config/{proc_of(seen.asker, 'trainers[2]')}")["entries"]
    assert [entry["name"] for entry in entries] == sorted(entry["name"] for entry in entries)
    assert {
        type(value)
        for entry in entries
        for name, value in entry.items()
        if name != "changed_from_default"
    } == {str}
    assert {entry["source"] for entry in entries} <= {"Default", "ClientOverride", "Env", "Runtime"}
    assert seen.asker.error("GET", "/v1/config/root")[:2] == (404, "not_found")


def test_sql_is_answered_and_refused_as_everywhere(seen: Seen) -> None:
    answer = seen.asker.post(
        "/v1/query", {"sql": "SELECT rank FROM actors WHERE name = 'trainer' ORDER BY 1"}
    )
    assert answer["rows"] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
    assert seen.asker.error("POST", "/v1/query", {"sql": "SELEC"})[:2] == (400, "bad_request")
    assert seen.asker.error("POST", "/v1/query", {"sql": "COPY actors TO '/tmp/x'"})[:2] == (
        400,
        "bad_request",
    )
    assert seen.asker.error("POST", "/v1/query", {"sql": "SELECT * FROM read_text('/etc/passwd')"})[
        :2
    ] == (
        400,
        "bad_request",
    )
    assert seen.asker.error("POST", "/v1/query", {})[:2] == (400, "bad_request")


def test_why_and_stacks_and_waits_name_who_holds_up_whom(seen: Seen) -> None:
    verdict = seen.asker.get("/v1/why")
    assert verdict["status"] in ("fine", "slow", "stuck") and "late" in json.dumps(verdict)
    [wait] = [
        wait for wait in seen.asker.get("/v1/waits")["waits"] if wait["actor"] == "trainer[1]"
    ]
    assert wait["for_actor"] == "late[0]" and wait["endpoint"] == "ask"
    assert (wait["rank"], wait["for_rank"]) == ("trainers[1]", "slow[0]")
    stacks = seen.asker.get("/v1/stacks?mesh=slow")
    assert {each["mesh"] for each in stacks["classes"]} == {"slow"} and stacks["silent"] == {}


def test_the_front_page_has_each_rank_and_what_changes(seen: Seen) -> None:
    shown = seen.asker.get("/v1/now")
    meshes = {mesh["name"]: mesh for mesh in shown["meshes"].values()}
    assert {"client", "trainers", "slow"} <= set(meshes) and shown["verdict"]["sentence"]
    assert (
        meshes["trainers"]["shape"] == {"gpus": 3}
        and len(meshes["trainers"]["columns"]["state"]) == 3
    )
    assert shown["states"][meshes["trainers"]["columns"]["state"][1]] == "waits"
    events = seen.asker.events("/v1/now/events")
    name, state = next(events)
    assert (
        name == "state"
        and set(state) == set(shown)
        and set(state["meshes"]) == set(shown["meshes"])
    )
    name, change = next(events)  # the processor time of some process, at least
    assert name == "delta" and set(change) <= {*shown, "cells"} and change
    events.close()


def test_metrics_are_those_of_the_text_format(seen: Seen) -> None:
    with seen.asker.open("GET", "/metrics") as answer:
        text = answer.read().decode()
        assert answer.status == 200 and answer.headers.get_content_type() == "text/plain"
    assert "# TYPE " in text and 'mesh="trainers"' in text


def test_py_spy_looks_at_a_process(seen: Seen) -> None:
    proc = proc_of(seen.asker, "slow[0]")
    found = seen.asker.get(f"/v1/pyspy/{proc}")
    [kind] = found
    assert kind in ("Ok", "BinaryNotFound", "Failed")
    if kind == "Ok":
        names = [
            frame["name"] for trace in found["Ok"]["stack_traces"] for frame in trace["frames"]
        ]
        assert any(name.rpartition(".")[2] == "late" for name in names)
    kept = seen.asker.post(f"/v1/pyspy_dump/{proc}")["dump_id"]
    assert set(seen.asker.get(f"/v1/pyspy_dumps/{kept}")) == {"proc_ref", "result"}
    for wrong in (
        {"duration_s": 0},
        {"duration_s": 301},
        {"duration_s": 1, "rate_hz": 1001},
        {"duration_s": "x"},
        {},
    ):
        assert seen.asker.error("POST", f"/v1/pyspy_profile_svg/{proc}", wrong)[:2] == (
            400,
            "bad_request",
        )


def test_files_are_made_of_what_runs(seen: Seen) -> None:
    status, trace = seen.asker.raw("POST", "/v1/profile", {"seconds": 0.2})
    assert status == 200 and trace
    assert seen.asker.error("POST", "/v1/profile", {"seconds": 1000})[:2] == (400, "bad_request")
    status, tables = seen.asker.raw("POST", "/v1/snapshot")
    assert status == 200 and tables[8:12] == b"DUCK"


def test_who_may_look_has_no_tables_of_stacks(seen: Seen) -> None:
    viewer = Asker(seen.url, seen.view_token)
    sql = {"sql": "SELECT count(*) AS n FROM stacks WHERE mesh = 'slow'"}
    assert seen.asker.post("/v1/query", sql)["rows"][0]["n"] > 0
    assert viewer.error("POST", "/v1/query", sql)[:2] == (400, "bad_request")
    assert viewer.error("POST", "/v1/query", {"sql": "SELECT * FROM query_table('pyspy_dumps')"})[
        :2
    ] == (
        400,
        "bad_request",
    )
    assert viewer.post("/v1/query", {"sql": "SELECT count(*) AS n FROM actors"})["rows"][0]["n"] > 0


def test_tls_is_spoken_where_other_machines_reach_it(
    seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = authority()
    server = issuer.sign_address("127.0.0.1")
    for name, text in (("CERT", server.pem), ("KEY", server.key_pem())):
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(f"HYPERACTOR_TLS_{name}", str(tmp_path / name))
    door = Door(seen.program.pid, "0.0.0.0:0")
    try:
        access = door.access("view")
        port = urlsplit(access["url"]).port
        assert access["url"] == f"https://localhost:{port}"
        trusting = ssl.create_default_context(cadata=issuer.pem)
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=trusting)
        connection.request("POST", access["link"].removeprefix(access["url"]))
        with connection.getresponse() as answer:
            assert answer.status == 200 and json.load(answer)["role"] == "view"
        connection.close()
        plain = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        plain.request("GET", "/v1/root")
        with pytest.raises((OSError, http.client.HTTPException)):
            plain.getresponse()
        plain.close()
    finally:
        door.close()


def test_many_who_ask_at_once_wait_for_their_turn(seen: Seen) -> None:
    paths = ["/v1/root", "/v1/waits", "/v1/tree", "/v1/meshes"] * 50
    with ThreadPoolExecutor(24) as pool:
        statuses = list(pool.map(lambda path: seen.asker.raw("GET", path)[0], paths))
    assert set(statuses) == {200}


def test_the_openapi_document_has_all_routes(seen: Seen) -> None:
    document = seen.asker.get("/openapi.json")
    assert document == seen.asker.get("/v1/openapi.json")
    operations: list[Any] = [
        operation for path in document["paths"].values() for operation in path.values()
    ]
    assert len({operation["operationId"] for operation in operations}) == len(operations) > 25
    status, guide = seen.asker.raw("GET", "/SKILL.md")
    assert status == 200 and all(f"`{path}`" in guide.decode() for path in document["paths"])


ENDS = """
    import os, sys
    from monarch.actor import Actor, endpoint, this_host
    from monarch.supervision import OneForOne

    class Trainer(Actor):
        @endpoint
        def pid(self):
            return os.getpid()

    if __name__ == "__main__":
        sure = this_host().spawn_procs({"gpus": 2}, name="sure", restart=OneForOne(max_restarts=5, within=60))
        again = sure.spawn("again", Trainer)
        spare = this_host().spawn_procs({"gpus": 2}, name="spare").spawn("unused", Trainer)
        spare.pid.call().get()
        print("go", *again.pid.call().get().values(), flush=True)
        sys.stdin.readline()
        print("again", *again.pid.call().get().values(), flush=True)
        try:
            spare.pid.call().get()
        except Exception as error:
            print("lost", str(error).replace(chr(10), " "), flush=True)
        sys.stdin.read()
    """


def test_meshes_are_stopped_and_started_again(tmp_path: Path) -> None:
    with running(ENDS, tmp_path) as program:
        before = program.wait_for("go").split()[1:]
        with admin_of(program.pid) as (_, asker):
            assert asker.error("POST", "/v1/meshes/spare/restart")[:2] == (409, "conflict")
            assert asker.post("/v1/meshes/spare/stop", {"reason": "enough of it"})["stopped"]
            assert asker.error("POST", "/v1/meshes/spare/stop")[:2] == (404, "not_found")
            assert asker.post("/v1/meshes/sure/restart")["killed"] == 2
            assert program.process.stdin is not None
            program.process.stdin.write("go on\n")
            program.process.stdin.flush()
            after = program.wait_for("again").split()[1:]
            assert len(after) == 2 and not set(after) & set(before)
            assert "enough of it" in program.wait_for("lost")
        assert program.end() == 0
