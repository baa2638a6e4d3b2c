"""What is known of processes that were killed: their agents hold memory in which they have
written.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.waiting import PATIENCE, wait_until
from monarch.actor import Actor, SupervisionError, concurrent_endpoint, endpoint, this_host
from monarch.config import configured
from monarch.supervision import OneForOne
from monarch.telemetry import read

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("what a process leaves behind when it is killed")


class Victim(Actor):
    @endpoint
    def pid(self) -> int:
        return os.getpid()

    @endpoint
    def hang(self) -> None:
        time.sleep(1_000)

    @endpoint
    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class AsyncVictim(Actor):
    @endpoint
    async def pid(self) -> int:
        return os.getpid()

    @concurrent_endpoint
    async def hang(self) -> None:
        time.sleep(1_000)

    @concurrent_endpoint
    async def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def rows(table: str) -> list[dict[str, Any]]:
    # other tests may have left silent procs
    return read(table, hosts=this_host()).get(timeout=PATIENCE).rows(table)


def actors(name: str) -> list[dict[str, Any]]:
    return sorted(
        (row for row in rows("actors") if row["name"] == name), key=lambda row: row["rank"]
    )


@pytest.mark.parametrize("cls", [Victim, AsyncVictim])
def test_what_a_process_was_handling_since_when_is_known_after_its_sigkill(
    spawn: Spawn, faults: Faults, cls: type[Victim]
) -> None:
    name = f"hung_{cls.__name__}"
    victims = spawn({"gpus": 2}).spawn(name, cls)
    pids = victims.pid.call().get(timeout=PATIENCE).values()
    called = time.time()
    answer = victims.slice(gpus=1).hang.call_one()
    [alive] = wait_until(
        lambda: [row for row in actors(name) if row["since_us"]], what="a look at it"
    )
    assert (
        alive["endpoint"] == "hang" and alive["status"] == "Processing" and alive["pid"] == pids[1]
    )
    assert called - 0.01 <= alive["since_us"] / 1e6 <= time.time()
    os.kill(pids[1], signal.SIGKILL)
    with pytest.raises(SupervisionError):
        answer.get(timeout=PATIENCE)
    faults.wait_for(1)
    other, dead = actors(name)
    assert dead["status"] == "Failed"
    assert other["status"] in ("Idle", "Processing") and other["pid"] == pids[0]
    kept = (
        "id",
        "pid",
        "endpoint",
        "since_us",
        "handled",
        "rank",
        "mesh_id",
        "proc_id",
        "full_name",
        "class",
    )
    assert {key: dead[key] for key in kept} == {key: alive[key] for key in kept}
    [message] = [row for row in rows("messages") if row["to_actor_id"] == dead["id"]]
    assert message["endpoint"] == "hang" and message["duration_us"] is None
    assert message["timestamp_us"] == alive["since_us"]
    [proc] = [row for row in rows("procs") if row["pid"] == pids[1]]
    assert (proc["state"], proc["signal"]) == ("ended", 9)


@pytest.mark.parametrize("cls", [Victim, AsyncVictim])
def test_telemetry_knows_the_fatal_message_to_the_microsecond(
    spawn: Spawn, faults: Faults, cls: type[Victim]
) -> None:
    name = f"killed_{cls.__name__}"
    with configured(telemetry="sampled"):
        victim = spawn(1).spawn(name, cls)
        victim.pid.call_one().get(timeout=PATIENCE)
        called = time.time()
        with pytest.raises(SupervisionError):
            victim.die.call_one().get(timeout=PATIENCE)
    ended = time.time()
    faults.wait_for(1)
    [dead] = actors(name)
    assert dead["status"] == "Failed"
    [message] = [row for row in rows("messages") if row["to_actor_id"] == dead["id"]]
    assert message["endpoint"] == "die" and message["duration_us"] is None and message["bytes"] > 0
    assert called <= message["timestamp_us"] / 1e6 <= ended
    [root] = [row for row in rows("actors") if row["id"] == message["from_actor_id"]]
    assert root["status"] == "Client"
    assert [
        row["status"] for row in rows("message_status_events") if row["message_id"] == message["id"]
    ] == ["active"]


def test_the_life_of_the_dead_is_known_until_the_end(spawn: Spawn, faults: Faults) -> None:
    victim = spawn(1).spawn("lived", Victim)
    pid = victim.pid.call_one().get(timeout=PATIENCE)
    os.kill(pid, signal.SIGKILL)
    faults.wait_for(1)
    [dead] = actors("lived")
    events = sorted(
        (row for row in rows("actor_status_events") if row["actor_id"] == dead["id"]),
        key=lambda row: row["timestamp_us"],
    )
    assert [row["new_status"] for row in events] == ["Created", "Initializing", "Idle", "Failed"]
    assert "SIGKILL" in events[-1]["reason"]


def test_a_rank_that_has_started_again_has_the_row_of_the_living_one(spawn: Spawn) -> None:
    again = spawn(1, restart=OneForOne()).spawn("again", Victim)
    before = again.pid.call_one().get(timeout=PATIENCE)
    with pytest.raises(SupervisionError):
        again.die.call_one().get(timeout=PATIENCE)
    after = again.pid.call_one().get(timeout=PATIENCE)
    [row] = actors("again")
    assert (
        before != after
        and row["pid"] == after
        and row["status"] in ("Idle", "Processing")
        and row["incarnation"] == 1
    )


def test_an_idle_process_does_not_wake_up_for_telemetry(spawn: Spawn) -> None:
    with configured(telemetry="sampled"):
        victims = spawn({"gpus": 2}).spawn("idle", Victim)
        pids = victims.pid.call().get(timeout=PATIENCE).values()
    awake = sum(map(wakeups, pids))

    def quiet() -> bool:
        nonlocal awake
        time.sleep(2.5)  # more than two beats
        before, awake = awake, sum(map(wakeups, pids))
        return awake == before

    wait_until(quiet, what="a time in which no thread of two idle processes wakes up")


def wakeups(pid: int) -> int:
    """How often threads of a process have gone to sleep."""
    found = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += int(
            (task / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0]
        )
    return found
