"""What telemetry keeps is bounded, and it does not observe itself."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from helpers.actors import Echo
from helpers.tables import here, tables
from helpers.waiting import PATIENCE, wait_until
from monarch.actor import Actor, endpoint
from monarch.config import configured
from monarch.telemetry import TABLES

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("telemetry of several processes")

EVENTS = (
    "messages",
    "message_status_events",
    "sent_messages",
    "actor_status_events",
    "handled",
    "spans",
    "steps",
)
"""What a question would add rows to, if it was observed."""


class Floods(Actor):
    """Is flooded, and says what that has cost."""

    @endpoint
    def take(self, number: int) -> None: ...

    @endpoint
    def resident(self) -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    @endpoint
    def samplers(self) -> int:
        gc.collect()
        return sum(type(each).__name__ == "ActorSampler" for each in gc.get_objects())


def rows(table: str) -> list[dict[str, Any]]:
    return tables(table).rows(table)


def of_actor(table: str, name: str, column: str = "actor_id") -> list[dict[str, Any]]:
    own = {row["id"] for row in rows("actors") if row["name"] == name}
    return [row for row in rows(table) if row[column] in own]


def test_a_question_adds_no_row_about_itself(spawn: Spawn) -> None:
    with configured(telemetry="all"):  # of the client, too
        echo = spawn({"gpus": 2}).spawn("observed", Echo)
        echo.pid.call().get(timeout=PATIENCE)

        [_, _] = own = [row["id"] for row in rows("actors") if row["name"] == "observed"]

        # of own procs, as other tests may have left some, and of calls to them
        def counts() -> dict[str, int]:
            found = tables("actors", *EVENTS)
            procs = {row["proc_id"] for row in found.rows("actors") if row["id"] in own}
            there = {row["id"] for row in found.rows("actors") if row["proc_id"] in procs}
            messages = [row for row in found.rows("messages") if row["to_actor_id"] in there]
            kept = {
                "messages": ("to_actor_id", there),
                "message_status_events": ("message_id", {row["id"] for row in messages}),
                "sent_messages": ("call", {row["call"] for row in messages}),
            }
            return {
                table: sum(row.get("count", 1) for row in found.rows(table) if row[column] in ids)
                for table in EVENTS
                for column, ids in [kept.get(table, ("actor_id", there))]
            }

        wait_until(lambda: counts() == counts(), what="the end of what the calls have left")
        before = counts()
        assert before["messages"] >= 2 and before["sent_messages"] >= 1
        for _ in range(5):
            here(*(table for table in TABLES if not table.startswith("pyspy")))
        assert counts() == before


def test_messages_are_kept_from_the_next_spawn_on_after_many_omissions(
    spawn: Spawn,
) -> None:
    with configured(telemetry="sampled"):
        floods = spawn().spawn("floods", Floods)
        for number in range(20_000):
            floods.take.broadcast(number)
        floods.resident.call_one().get(timeout=PATIENCE)
    with configured(telemetry="all"):
        echo = spawn().spawn("kept", Echo)
        for _ in range(10):
            echo.pid.call_one().get(timeout=PATIENCE)
    calls = {row["call"] for row in of_actor("messages", "kept", "to_actor_id")}
    sent = [row for row in rows("sent_messages") if row["call"] in calls]
    assert [row["endpoint"] for row in sent] == ["pid"] * 10 and len(calls) == 10


def test_memory_is_flat_over_200_000_messages(spawn: Spawn) -> None:
    with configured(telemetry="sampled", telemetry_memory="1 MiB"):
        floods = spawn(1).spawn("flat", Floods)

    def send(count: int) -> int:
        for number in range(count):
            floods.take.broadcast(number)
            if number % 1_000 == 0:  # else a backlog would be measured
                floods.resident.call_one().get()
        found: int = floods.resident.call_one().get()
        return found

    before = send(50_000)
    assert send(150_000) - before < 2 << 20
    [seconds, tens] = [
        [row for row in of_actor("history", "flat") if row["seconds"] == each] for each in (1, 10)
    ]
    assert len(seconds) >= len(tens) >= 1
    exact = sum(row["count"] for row in of_actor("handled", "flat"))
    wait_until(  # the last second is written when it is over
        lambda: (
            sum(row["handled"] for row in of_actor("history", "flat") if row["seconds"] == 1)
            == exact
        ),
        what="it all",
    )


def test_actors_that_have_ended_leave_nothing_to_look_at_messages(spawn: Spawn) -> None:
    # for which the engine remembers them
    with configured(telemetry="sampled", cleanup_timeout=1.0):
        procs = spawn(1)
        floods = procs.spawn("stays", Floods)
        for _ in range(50):
            short = procs.spawn("short", Echo)
            short.pid.call_one().get(timeout=PATIENCE)
            short.stop().get(timeout=PATIENCE)
    wait_until(
        lambda: floods.samplers.call_one().get(timeout=PATIENCE) <= 2,
        what="the end of their samplers",
    )
    assert [row["rank"] for row in rows("actors") if row["name"] == "short"] == []
