"""`benchmarks.demo`: simulated processes behind the real admin interface."""

from __future__ import annotations

import os
import re
import signal
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from benchmarks.demo.answers import Processes
from benchmarks.demo.faults import FAULTS
from benchmarks.demo.hub import SimulatedHub
from benchmarks.demo.world import DemoWorld

from helpers.demo import demo
from helpers.waiting import wait_gone
from monarch._core.plane import Hub
from monarch.admin import tree
from monarch.programs import Connection, Program
from monarch.stacks.gather import of_program as stacks_of
from monarch.telemetry.gather import of_program as rows_of
from monarch.telemetry.gather import question
from monarch.telemetry.run_file import snapshot_source, write_run
from monarch.telemetry.tables import TABLES
from monarch.why import FINE, SLOW, STUCK, Verdict
from monarch.why.gather import of_program as why
from monarch.why.run import judged, of_run

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("duckdb")  # here, as it starts threads
pytest.importorskip("arro3.core")

pytestmark = pytest.mark.timeout(300)

RANKS = 24  # the odd one is 10, on trainers[1] on h1

VERDICTS = {
    "none": (FINE, "Fine: .* ranks work.*"),
    "hostile-logs": (FINE, "Fine: .* ranks work.*"),
    "missing-collective": (STUCK, r".*23 ranks of trainers in all_reduce.*; trainers\[10\] .*recv_into \(data.py:31\).*socket.*"),
    "deadlock": (STUCK, r".*trainer\[10\] → loader\[1\] → trainer\[10\] wait for each other\."),
    "slow-loader": (SLOW, r"Slow for .*wait for trainers\[10\] .* in wait_for_shard \(data.py:44\).*"),
    "straggler": (SLOW, r"Slow: trainers\[10\] .* is slower than the others by (39|40|41) %.*"),
    "lock": (STUCK, r".*; trainers\[10\] .* in acquire \(train.py:83\): a wait for another thread, or a lock\."),
    "full-mailbox": (STUCK, r".*; metrics\[0\] .* its mailbox is full, 1,000 messages wait\."),
    "dead-rank": (STUCK, r".*23 ranks of trainers .*; without trainers\[10\]: .*by SIGKILL; .* had used all of the 236,223 MB .* ago\."),
    "lost-rank": (STUCK, r".*23 ranks of trainers .*in all_reduce.*; without trainers\[10\]: .*exited with non-zero code 3.* ago\."),
    "silent-host": (STUCK, r".*host trainers\[1\] \(tcp://10\.0\.0\.2:26600\) does not answer.*"),
    "gil": (STUCK, r".*; trainers\[10\] .* in sub \(data.py:93\): C code holds the GIL.*"),
    "stopped": (STUCK, r".*; trainers\[10\] .* is stopped \(SIGSTOP, or Ctrl-Z\)\."),
    "pending-job": (FINE, r"Fine: nothing runs; the client is in state \(main\.py:18\) for \d+ s: .* 9: PENDING \(Resources\), .*\."),
    "breakpoint": (STUCK, r".*; trainers\[10\] .* is stopped in the debugger: monarch debug\."),
}  # fmt: skip


def simulated(
    fault: str, after: float | None = None, speed: float = 10
) -> tuple[DemoWorld, Connection]:
    """Its clock is ten times as quick as ours: looks a tenth of a second apart tell what moves."""
    began = time.time()
    world = DemoWorld(RANKS, fault, began, after)
    processes = Processes(world, lambda: began + speed * (time.time() - began))
    hub = cast(Hub, SimulatedHub(world.client, processes.answer))
    program = Program(os.getpid(), "demo", began, False, "head")
    return world, Connection(hub, program, world.describe(world.hosts[0], began, False))


def verdict(fault: str) -> Verdict:
    return why(simulated(fault)[1], 0.1)


def test_each_fault_has_a_verdict_here() -> None:
    assert VERDICTS.keys() == FAULTS.keys()


@pytest.mark.parametrize("fault", FAULTS)
def test_the_verdict_names_the_rank_with_the_fault(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a host that is silent takes all of it; others answer at once
    monkeypatch.setattr("monarch.why.gather._LIMIT", 0.1)
    found = verdict(fault)
    status, sentence = VERDICTS[fault]
    assert found.status == status and re.fullmatch(sentence, found.sentence), found.sentence
    if fault == "dead-rank":
        assert [each.partition(":")[0] for each in found.failures] == ["trainers[10] has ended"]


def _without_times(verdict: Verdict) -> object:
    """Of looks at other moments."""
    standings = [
        (each.mesh, each.ranks, each.state, re.sub(r"\d", "", each.reason), each.blamed)
        for each in verdict.classes
        if each.blamed
    ]
    said = re.sub(r"\d+ (s|ms|min|%)", "N", verdict.sentence)
    if verdict.status == FINE:  # of that the ranks at work are others
        said = ""
    return verdict.status, said, standings, verdict.silent


@pytest.mark.parametrize("fault", FAULTS)
def test_the_file_of_a_run_has_the_verdict_on_the_running_program(
    fault: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("monarch.why.gather._LIMIT", 0.1)
    _, connection = simulated(fault)
    live = why(connection, 0.1)
    about = {**judged(connection, 0.1), "reason": "a test"}
    file = tmp_path / "run.duckdb"
    write_run(file, snapshot_source(connection), about, 30.0)
    kept = of_run(file)
    made, _, sentence = kept.sentence.partition(": ")
    assert re.match(r"\d{4}-\d\d-\d\d ", made)
    assert _without_times(replace(kept, sentence=sentence)) == _without_times(live)
    assert kept.exit_status == live.exit_status
    assert (kept.seconds is None) == (live.seconds is None)


def test_a_fault_begins_when_it_is_to() -> None:
    world, connection = simulated("missing-collective", after=3600)
    assert why(connection, 0.1).status == FINE
    assert world.steps(world.fault_at + 100) == world.hung_step  # it hangs then


def test_a_mesh_that_is_started_again_has_no_fault_any_more() -> None:
    world, _ = simulated("lock")
    processes, now = Processes(world, lambda: world.began), world.began
    before = world.steps(now)
    processes.answer(world.odd.address.agent, "KillProcs", (world.trainers.uid, [10], "again"))
    assert not world.lives(world.odd, now) and world.lives(world.odd, now + 5)
    assert world.steps(now + 12.5) == before + 10 and world.begin_of(int(before) + 10) == now + 12.5
    assert not world.lasts(now + 5)


@pytest.mark.parametrize("fault", ["none", "slow-loader", "straggler", "lock"])
@pytest.mark.parametrize("odd", [False, True])
def test_steps_begin_when_those_before_are_done(fault: str, odd: bool) -> None:
    world = DemoWorld(8, fault, 1e9)
    for now in (1e9 - 3000, 1e9 - 10, 1e9 + 1, 1e9 + 5000):
        step = int(world.steps(now, odd))
        assert (
            world.begin_of(step, odd) <= now + 1e-6 and world.begin_of(step + 1, odd) > now - 1e-6
        )


def test_each_table_that_can_be_has_rows() -> None:
    filled = set()
    for fault in ("deadlock", "dead-rank"):
        found = rows_of(simulated(fault, speed=1)[1], question(TABLES, limit=500)).get()
        assert found.silent == {} and len(found.rows("procs")) == RANKS + 3 + 2, fault
        filled |= {table for table in TABLES if found.rows(table)}
    assert {each for each in TABLES.keys() - filled if not each.startswith(("pyspy_", "metric_"))} == {
        "span_events", "torch_events", "ordering_sessions", "resolution_errors", "actor_inbound_orderings",
    }  # fmt: skip


def test_the_tree_names_hosts_and_ranks_as_all_other_faces_do() -> None:
    found = rows_of(simulated("none", speed=1)[1], question(tree.TABLES)).get()
    drawn = tree.Tree(found, time.time()).drawn("").splitlines()
    labels = {line.partition("  ->")[0].lstrip("│├└─ ") for line in drawn}
    assert {
        "head (1 procs)",
        "trainers[1] on h1 (9 procs)",
        "trainers[10]",
        "metrics[0]",
        "client",
    } <= labels
    assert not [label for label in labels if "://" in label or "client[" in label]


def test_stacks_of_chosen_ranks_are_told() -> None:
    found = stacks_of(simulated("lock")[1], "trainers", "hosts=1,gpus=1:3").get()
    assert [(proc.mesh, proc.rank) for proc in found.procs] == [("trainers", 9), ("trainers", 10)]


@pytest.mark.parametrize(
    ("ranks", "fault"), [(0, "none"), (20_001, "none"), (1, "lock"), (8, "no-such")]
)
def test_a_world_that_can_not_be_is_refused(ranks: int, fault: str) -> None:
    with pytest.raises(ValueError, match="ranks, not|there is no fault"):
        DemoWorld(ranks, fault, 0.0)


def test_ten_thousand_ranks_need_little_memory() -> None:
    tracemalloc.start()
    try:
        world = DemoWorld(10_000, "lock", 0.0)
        assert tracemalloc.get_traced_memory()[0] < 12 << 20 and world.odd.rank == 4170
    finally:
        tracemalloc.stop()


def test_the_command_serves_until_it_is_interrupted_and_its_helper_may_be_killed() -> None:
    with demo(16, "missing-collective") as running:
        picture = running.asker.get("/v1/now")
        assert (
            picture["verdict"]["blamed"][0]["ranks"] == [6] and picture["verdict"]["seconds"] >= 43
        )
        wanted = {
            "sql": (
                "SELECT text FROM logs WHERE rank = 6 AND level = 'WARNING' ORDER BY timestamp_us"
            )
        }
        lines = running.asker.post("/v1/query", wanted)["rows"]
        assert [each["text"].partition(":")[0] for each in lines] == ["shard-00006-12", "10.9.0.7"]
        helper = running.helper
        os.kill(helper, signal.SIGKILL)
        wait_gone(helper)
        again = running.asker.get("/v1/now")  # by another one, for whom the time has gone on
        assert again["verdict"]["seconds"] > picture["verdict"]["seconds"]
        assert running.asker.post("/v1/meshes/trainers/restart", {})["killed"] == 16
    assert running.process.returncode == 0
