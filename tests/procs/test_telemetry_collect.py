"""What runs where, who waits for whom, and who has ended: asked of a running program, as tables."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo
from helpers.processes import stopped
from helpers.scripts import run_script
from helpers.tables import here, rows, tables
from helpers.terminals import running
from helpers.waiting import PATIENCE, wait_until
from monarch.actor import Actor, endpoint, this_proc
from monarch.telemetry import TABLES, Collected, read
from monarch.telemetry.rows import shape_json

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("telemetry of several processes")


class Asks(Actor):
    """Waits for the answer of another one."""

    @endpoint
    def ask(self, other: Any) -> int:
        answer: int = other.pid.call_one().get()
        return answer

    @endpoint
    def ask_within(self, other: Any, seconds: float) -> int:
        answer: int = other.pid.call_one().get(timeout=seconds)
        return answer


def test_actors_procs_and_meshes_are_joined_by_their_ids(spawn: Spawn) -> None:
    actors = spawn({"gpus": 3}, name="trainers").spawn("joined", Echo)
    pids = actors.pid.call().get().values()
    found = tables("actors", "procs", "meshes", "hosts")
    assert not found.left_out
    mine = [row for row in found.rows("actors") if row["name"] == "joined"]
    assert [
        (row["rank"], row["pid"], row["status"], row["class"])
        for row in sorted(mine, key=lambda row: row["rank"])
    ] == [(rank, pid, "Idle", "helpers.actors.Echo") for rank, pid in enumerate(pids)]
    procs = {row["id"]: row for row in found.rows("procs")}
    assert {procs[row["proc_id"]]["pid"] for row in mine} == set(pids)
    assert all(
        procs[row["proc_id"]]["mesh"] == "trainers" and procs[row["proc_id"]]["rss_bytes"]
        for row in mine
    )
    meshes = {row["id"]: row for row in found.rows("meshes")}
    [of_actors] = {row["mesh_id"] for row in mine}
    assert meshes[of_actors]["class"] == "Python<Echo>" and meshes[of_actors][
        "shape_json"
    ] == shape_json({"gpus": 3})
    of_procs = meshes[meshes[of_actors]["parent_mesh_id"]]
    assert (of_procs["class"], of_procs["given_name"]) == ("Proc", "trainers")
    [host] = found.rows("hosts")
    assert (
        of_procs["parent_mesh_id"] == host["id"]
        and host["memory_bytes"] > host["memory_available_bytes"] > 0
    )
    was = tables("host_history").rows("host_history")  # since somebody has first asked
    assert {row["host_id"] for row in was} == {host["id"]}
    disk = os.statvfs(host["disk"])
    assert host["disk"] in ("/", "/tmp", "/dev/shm") or os.getcwd().startswith(host["disk"])
    assert 0 <= host["disk_available_bytes"] < host["disk_bytes"]
    assert host["disk_bytes"] <= disk.f_blocks * disk.f_frsize
    assert all(0 <= row["disk_percent"] <= 100 for row in was)
    assert all(0 < row["memory_used_bytes"] < host["memory_bytes"] for row in was)
    assert host["timestamp_us"] - was[-1]["timestamp_us"] < 1_000_000 and was[-1]["load_1m"] >= 0
    [client] = [row for row in found.rows("actors") if row["status"] == "Client"]
    assert client["pid"] == os.getpid() == procs[client["proc_id"]]["pid"]


def test_who_waits_for_whom_is_a_row_with_both_actors(spawn: Spawn) -> None:
    procs = spawn(2, name="two")
    asks, asked = procs.slice(gpus=0).spawn("asks", Asks), procs.slice(gpus=1).spawn("asked", Echo)
    [pid] = asked.pid.call().get().values()
    with stopped(pid):
        answer = asks.ask.call_one(asked)

        def waits() -> list[dict[str, Any]]:
            found = here("waits", "actors")
            assert [name.partition(" on ")[0] for name in found.silent] == ["two[1]"]
            return [row for row in found.rows("waits") if row["endpoint"] == "ask"]

        [row] = wait_until(waits, what="the wait")
        limited = (
            procs.slice(gpus=0).spawn("limited", Asks).ask_within.call_one(asked, 10 * PATIENCE)
        )
        wait_until(  # which notes no time: the pulse sees it
            lambda: [
                each
                for each in here("waits").rows("waits")
                if each["proc_id"] == row["proc_id"]
                and each["endpoint"] is None
                and each["since_us"]
            ],
            what="since when it waits",
        )
    assert answer.get(timeout=PATIENCE) == limited.get(timeout=PATIENCE) == pid
    names = {each["id"]: each["name"] for each in rows("actors")}
    assert (names[row["actor_id"]], names[row["for_actor_id"]]) == ("asks", "asked")
    assert row["since_us"] > 0 and "asked" in row["waits_for"]


def test_a_killed_proc_and_its_actors_are_still_in_the_tables(spawn: Spawn, faults: Faults) -> None:
    # a name of no other test
    actors = spawn({"gpus": 2}, name="remembered").spawn("remembered", Echo)
    actors.pid.call().get()

    def victims(*statuses: str) -> list[Collected]:
        """Once they have these: one that is slow to answer, on a machine that has much to do, is
        missing at first.
        """
        found = here("actors", "procs")
        seen = {
            row["rank"]: row["status"]
            for row in found.rows("actors")
            if row["name"] == "remembered"
        }
        return [found] if seen == dict(enumerate(statuses)) else []

    def by_rank(found: Collected) -> dict[int, dict[str, Any]]:
        return {row["rank"]: row for row in found.rows("actors") if row["name"] == "remembered"}

    [found] = wait_until(lambda: victims("Idle", "Idle"), what="both")
    before = by_rank(found)
    os.kill(actors.slice(gpus=1).pid.call_one().get(), signal.SIGKILL)
    faults.wait_for(1)
    [found] = wait_until(
        lambda: victims("Idle", "Failed"), what="the one that is left, and the dead one"
    )
    after = by_rank(found)
    assert (after[1]["id"], after[1]["full_name"]) == (before[1]["id"], before[1]["full_name"])
    [proc] = [row for row in found.rows("procs") if row["id"] == after[1]["proc_id"]]
    assert (proc["state"], proc["signal"]) == ("ended", signal.SIGKILL) and "SIGKILL" in proc[
        "reason"
    ]


def test_the_tree_of_a_snapshot_leads_from_the_root_to_each_actor(spawn: Spawn) -> None:
    actors = spawn({"gpus": 2}, name="leaves").spawn("leaf", Echo)
    actors.pid.call().get()
    names = [
        "snapshots",
        "nodes",
        "children",
        "root_nodes",
        "host_nodes",
        "proc_nodes",
        "actor_nodes",
        "actor_executions",
    ]
    found = tables(*names)
    [snapshot] = {row["snapshot_id"] for table in names for row in found.rows(table)}
    assert [row["snapshot_id"] for row in found.rows("snapshots")] == [snapshot]
    kinds = {row["node_id"]: row["node_kind"] for row in found.rows("nodes")}
    parents = {row["child_id"]: row["parent_id"] for row in found.rows("children")}
    assert set(parents) | {"root"} == set(kinds)
    leaves = [
        row for row in found.rows("actor_nodes") if row["actor_type"] == "helpers.actors.Echo"
    ]
    assert sorted(row["actor_status"] for row in leaves)[0] == "idle" and len(leaves) >= 2
    for leaf in leaves:
        proc = parents[leaf["node_id"]]
        path = [
            kinds[leaf["node_id"]],
            kinds[proc],
            kinds[parents[proc]],
            kinds[parents[parents[proc]]],
        ]
        assert path == ["actor", "proc", "host", "root"]
    assert found.rows("root_nodes")[0]["num_hosts"] >= len(found.rows("host_nodes")) == 1


def test_only_the_columns_and_rows_that_were_asked_for_come(spawn: Spawn) -> None:
    spawn(2).spawn("one", Echo).pid.call().get()
    found = read("actors", limit=1, columns={"actors": ["rank", "name"]}).get(timeout=PATIENCE)
    assert list(found.columns["actors"]) == ["name", "rank"] or list(found.columns["actors"]) == [
        "rank",
        "name",
    ]
    assert len(found.rows("actors")) == 1 and found.left_out["actors"] >= 2
    empty = read("resolution_errors").get(timeout=PATIENCE)
    assert empty.columns == {
        "resolution_errors": {column: [] for column in TABLES["resolution_errors"].columns}
    }
    with pytest.raises(ValueError, match="there is no table 'actor'; there are "):
        read("actor")
    with pytest.raises(ValueError, match="table 'actors' has no column 'ranks'; it has id, "):
        read("actors", columns={"actors": ["ranks"]})


def test_an_actor_collects_what_the_client_would(spawn: Spawn) -> None:
    looks = spawn(1).spawn("looks", Looks)
    found = looks.look.call_one().get(timeout=PATIENCE)
    assert {"looks", "root"} <= {row["name"] for row in found.rows("actors")}


class Looks(Actor):
    @endpoint
    def look(self) -> Collected:
        return read("actors").get(timeout=PATIENCE)


def test_another_process_collects_from_a_program_that_has_imported_nothing_for_it(
    tmp_path: Path,
) -> None:
    source = """
    import sys
    from monarch.actor import Actor, endpoint, this_host

    def modules():
        return [name for name in sys.modules if "telemetry" in name]

    class Trainer(Actor):
        @endpoint
        def modules(self):
            return modules()

    if __name__ == "__main__":
        trainers = this_host().spawn_procs({"gpus": 2}).spawn("trainers", Trainer)
        print("go", *trainers.modules.call().get().values(), modules(), flush=True)
        sys.stdin.read()
    """
    look = """
    import monarch.programs
    from monarch.telemetry.gather import of_program, question
    with monarch.programs.connect(int(sys.argv[1])) as connection:
        found = of_program(connection, question(["actors", "procs"])).get()
    assert not found.silent
    print(sorted(row["name"] for row in found.rows("actors")), len(found.rows("procs")))
    """
    with running(source, tmp_path) as program:
        assert program.wait_for("go") == "go [] [] []"
        shown = program.other(look, str(program.pid))
        assert (
            shown.stdout
            == "['host_agent', 'proc_agent', 'proc_agent', 'root', 'trainers', 'trainers'] 3\n"
        ), shown.stderr
        program.end()


def test_statistics_and_hosts_can_be_had_of_the_client_alone() -> None:
    procs = this_proc()
    assert procs.statistics().get().item().pid in [row["pid"] for row in rows("statistics")]


def test_a_program_that_has_spawned_nothing_finds_itself() -> None:
    source = """
    from monarch.telemetry import read

    if __name__ == "__main__":
        print(*(row["name"] for row in read("actors").get().rows("actors")))
    """
    result = run_script(source)
    assert sorted(result.stdout.split()) == ["host_agent", "root"], result
