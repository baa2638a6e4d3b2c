"""Messages of a program: counted exactly, and looked at where telemetry is on.

And the life of actors and procs.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo
from helpers.tables import rows
from helpers.waiting import PATIENCE, wait_until
from monarch.actor import Actor, ActorError, concurrent_endpoint, endpoint
from monarch.config import configured
from monarch.telemetry import read

if TYPE_CHECKING:
    from conftest import Spawn
    from helpers.faults import Faults

pytestmark = pytest.mark.processes("telemetry of several processes")


class Works(Actor):
    @endpoint
    def add(self, value: int) -> int:
        return value + 1

    @endpoint
    def fail(self) -> None:
        raise ValueError("on purpose")

    @endpoint
    def pass_on(self, other: Any) -> int:
        answer: int = other.add.call_one(1).get()
        return answer


class WorksAsync(Actor):
    @endpoint
    async def add(self, value: int) -> int:
        return value + 1

    @concurrent_endpoint
    async def fail(self) -> None:
        raise ValueError("on purpose")


def messages(name: str) -> list[dict[str, Any]]:
    """Those of actors of this name: tests before may have killed processes, of which some are known
    as well.
    """
    own = {row["id"] for row in rows("actors") if row["name"] == name}
    return [row for row in rows("messages") if row["to_actor_id"] in own]


def counts(name: str) -> dict[tuple[int, str], tuple[int, int]]:
    return {
        (row["rank"], row["endpoint"]): (row["count"], row["failed"])
        for row in rows("handled")
        if row["actor"] == name
    }


@pytest.mark.parametrize("cls", [Works, WorksAsync])
def test_handled_messages_are_counted_exactly_by_endpoint_without_any_switch(
    spawn: Spawn, cls: Any
) -> None:
    works, began = spawn({"gpus": 2}).spawn("counted", cls), time.time_ns() // 1000
    for _ in range(100):
        works.slice(gpus=0).add.broadcast(1)
    for _ in range(3):
        with pytest.raises(ActorError):
            works.slice(gpus=1).fail.call_one().get(timeout=PATIENCE)
    works.add.call(1).get(timeout=PATIENCE)
    wanted = {(0, "add"): (101, 0), (1, "add"): (1, 0), (1, "fail"): (3, 3)}
    # a reply is sent before its call is over
    wait_until(lambda: counts("counted") == wanted, what="the counts")
    raised = {
        (row["rank"], row["endpoint"]): row["failed_us"]
        for row in rows("handled")
        if row["actor"] == "counted"
    }
    assert raised.pop((1, "fail")) >= began and set(raised.values()) == {None}
    # those of a mesh that was stopped stay, and have handled nothing
    handled = {
        row["rank"]: row["handled"]
        for row in rows("actors")
        if row["name"] == "counted" and row["status"] != "Stopped"
    }
    assert handled == {0: 101, 1: 4}
    assert messages("counted") == []  # nobody has asked for those


@pytest.mark.parametrize("cls", [Works, WorksAsync])
def test_with_telemetry_each_of_few_messages_has_a_row_with_its_outcome(
    spawn: Spawn, cls: Any
) -> None:
    with configured(telemetry="sampled"):
        procs = spawn(1)
    works = procs.spawn("seen", cls)
    for number in range(20):
        works.add.call_one(number).get(timeout=PATIENCE)
    with pytest.raises(ActorError):
        works.fail.call_one().get(timeout=PATIENCE)

    def ended() -> list[dict[str, Any]]:
        found = messages("seen")
        return (
            found
            if len(found) == 21 and all(row["duration_us"] is not None for row in found)
            else []
        )

    found = wait_until(ended, what="21 messages")
    assert [row["endpoint"] for row in found] == ["add"] * 20 + ["fail"]
    assert all(row["sample_weight"] == 1 and row["bytes"] > 0 for row in found)
    assert len({row["id"] for row in found}) == 21
    names = {row["id"]: row["name"] for row in rows("actors")}
    assert {(names[row["from_actor_id"]], names[row["to_actor_id"]]) for row in found} == {
        ("root", "seen")
    }
    statuses = {row["id"]: [] for row in found}  # type: ignore[var-annotated]
    for row in rows("message_status_events"):
        if row["message_id"] in statuses:
            statuses[row["message_id"]].append(row["status"])
    assert [statuses[row["id"]] for row in found] == [["active", "complete"]] * 20 + [
        ["active", "failed"]
    ]


def test_with_telemetry_what_an_actor_sends_has_a_row_for_each_call(spawn: Spawn) -> None:
    with configured(telemetry="all"):
        procs = spawn(2)
        one, other = (
            procs.slice(gpus=0).spawn("one", Works),
            procs.slice(gpus=1).spawn("other", Works),
        )
        assert one.pass_on.call_one(other).get(timeout=PATIENCE) == 2
    one.pass_on.call_one(other).get(timeout=PATIENCE)  # the client looks no longer, the procs do
    one.pass_on.call_one(other).get(timeout=PATIENCE)
    names = {row["id"]: row["name"] for row in rows("actors")}
    meshes = {row["id"]: row["given_name"] for row in rows("meshes")}
    sent = [
        (names.get(row["sender_actor_id"]), meshes.get(row["actor_mesh_id"]), row["endpoint"])
        for row in rows("sent_messages")
    ]
    assert sent.count(("one", "other", "add")) == 3
    assert 1 <= sent.count(("root", "one", "pass_on")) <= 2
    own = [row for row in rows("sent_messages") if names.get(row["sender_actor_id"]) == "one"]
    assert own and all(row["bytes"] > 0 and row["sample_weight"] == 1 for row in own)


def test_a_flood_is_sampled_with_weights_and_stays_within_its_memory(spawn: Spawn) -> None:
    with configured(telemetry="sampled", telemetry_memory="1 MiB"):
        procs = spawn(1)
    works = procs.spawn("flooded", Works)
    count = 20_000
    for number in range(count):
        works.add.broadcast(number)
    works.add.call_one(0).get()
    exact = counts("flooded")[0, "add"][0]
    found = messages("flooded")
    assert exact in (count, count + 1)  # the last call may not be over
    assert len(found) <= (1 << 20) // 800
    # beyond 256 in a second some are left out
    assert max(row["sample_weight"] for row in found) > 1
    assert sum(row["sample_weight"] for row in found) <= 1.5 * count


def statuses(name: str) -> dict[int, list[str]]:
    found = read("actors", "actor_status_events").get(timeout=PATIENCE)
    ranks = {row["id"]: row["rank"] for row in found.rows("actors") if row["display_name"] == name}
    events = sorted(found.rows("actor_status_events"), key=lambda row: int(row["timestamp_us"]))
    return {
        rank: [row["new_status"] for row in events if row["actor_id"] == actor]
        for actor, rank in ranks.items()
    }


def test_the_life_of_actors_is_remembered_also_of_those_whose_process_was_killed(
    spawn: Spawn, faults: Faults
) -> None:
    actors = spawn({"gpus": 2}, name="mortals").spawn("mortal", Echo)
    pids = actors.pid.call().get().values()
    assert statuses("mortal") == {rank: ["Created", "Initializing", "Idle"] for rank in range(2)}
    os.kill(pids[1], signal.SIGKILL)
    faults.wait_for(1)
    # by its black box, and its owner
    assert statuses("mortal")[1] == ["Created", "Initializing", "Idle", "Failed"]
    [dead] = [row["id"] for row in rows("actors") if (row["name"], row["rank"]) == ("mortal", 1)]
    *_, reason = [row["reason"] for row in rows("actor_status_events") if row["actor_id"] == dead]
    assert "SIGKILL" in reason
    assert statuses("mortals[1]")[1] == ["Created", "Idle", "Failed"]  # the proc, by its agent


def test_ten_thousand_short_lived_actors_leave_a_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from monarch._core.hub import life
    from monarch._core.plane import ProcAddress

    # other threads remember things, too
    monkeypatch.setattr(life, "_events", deque(maxlen=life._events.maxlen))
    address = ProcAddress("host", "short-lived")
    for number in range(10_000):
        life.remember(address, number, life.CREATED, "x" * 10_000)
    found = life.life_events()
    own = [event for event in found if event.address == address]
    assert len(found) == 5_000 and own[-1].uid == 9_999 and len(own[-1].reason) == 1_000
