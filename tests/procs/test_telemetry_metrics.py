"""Metrics, spans and steps of a program, read from all its processes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from helpers.tables import rows
from helpers.waiting import PATIENCE
from monarch.actor import Actor, context, endpoint, get_meter, span
from monarch.config import configured
from monarch.telemetry import Observation, step, traced

if TYPE_CHECKING:
    from conftest import Spawn

pytestmark = pytest.mark.processes("telemetry of several processes")


class Trains(Actor):
    def __init__(self) -> None:
        meter = get_meter()
        self.rank = context().actor_instance.rank.rank
        self.samples = meter.create_counter("samples", "1", "samples seen")
        self.loss = meter.create_gauge("loss")
        self.took = meter.create_histogram("took", "ms")
        meter.create_observable_gauge("rank", [lambda options: [Observation(self.rank)]])

    @endpoint
    def train(self, steps: int) -> None:
        for number in range(steps):
            step(number, total=steps)
            with span("forward", batch=number):
                self.samples.add(8, {"split": "train"})
            self.loss.set(1 / (number + 1))
            self.took.record(number)
            self.backward()

    @traced
    def backward(self) -> None:
        with span("inner"):
            pass

    @endpoint
    def fail(self) -> None:
        with pytest.raises(ValueError, match="on purpose"), span("failing"):
            raise ValueError("on purpose")


class TrainsAsync(Actor):
    @traced(name="slow")
    async def slow(self) -> None:
        await asyncio.sleep(0)

    @endpoint
    async def train(self) -> None:
        await asyncio.gather(self.slow(), self.slow())


def by_proc(rows: list[dict[str, Any]], name: str, value: str) -> list[Any]:
    return sorted(row[value] for row in rows if row["name"] == name)


def test_metrics_of_all_ranks_are_rows_with_their_units_and_attributes(spawn: Spawn) -> None:
    trains = spawn({"gpus": 2}).spawn("trains", Trains)
    trains.slice(gpus=0).train.call_one(4).get(timeout=PATIENCE)
    trains.slice(gpus=1).train.call_one(2).get(timeout=PATIENCE)
    sums, gauges, histograms = rows("metric_sums"), rows("metric_gauges"), rows("metric_histograms")
    assert by_proc(sums, "samples", "sum_i64") == [16, 32]
    [counter, _] = [row for row in sums if row["name"] == "samples"]
    assert (counter["unit"], counter["scope_name"], counter["is_monotonic"]) == (
        "1",
        "monarch",
        True,
    )
    assert (
        json.loads(counter["attributes_json"]) == {"split": "train"}
        and counter["start_timestamp_us"] > 0
    )
    assert by_proc(gauges, "loss", "value_f64") == [0.25, 0.5]
    assert by_proc(gauges, "rank", "value_i64") == [0, 1]  # asked for just now
    assert by_proc(histograms, "took", "count") == [2, 4] and by_proc(
        histograms, "took", "sum_i64"
    ) == [1, 6]


def test_what_the_engine_counts_has_the_names_of_monarch(spawn: Spawn) -> None:
    with configured(telemetry="all"):
        procs = spawn({"gpus": 1}, name="measured")
    trains = procs.spawn("trains", Trains)
    for _ in range(3):
        trains.train.call_one(1).get(timeout=PATIENCE)
    mine = [
        row
        for row in rows("metric_sums")
        if json.loads(row["attributes_json"]).get("actor") == "trains"
    ]
    counted = {
        row["name"]: row["sum_u64"] if row["is_monotonic"] else row["sum_i64"] for row in mine
    }
    assert counted == {
        "actor.messages_received": 3, "actor.message_receive_errors": 0, "actor.message_queue_size": 0, "mailbox.posts": 3,
    }  # fmt: skip
    active = [
        row
        for row in rows("metric_sums")
        if json.loads(row["attributes_json"]) == {"mesh": "measured"}
    ]
    assert {row["name"]: row["sum_i64"] or row["sum_u64"] for row in active} == {
        "proc_mesh.active_procs": 1, "proc_mesh.proc_failures": 0,
    }  # fmt: skip
    assert by_proc(rows("metric_gauges"), "process.memory.rss_bytes", "value_u64")[0] > 1_000_000
    [duration] = [
        row
        for row in rows("metric_histograms")
        if row["name"] == "actor.message_handler_duration.ns"
    ]
    # the last may not be over
    assert json.loads(duration["attributes_json"])["endpoint"] == "train" and duration["count"] >= 2
    assert (
        sum(json.loads(duration["bucket_counts_json"])) == duration["count"]
        and duration["min_u64"] > 0
    )


def test_spans_nest_and_say_how_long_they_took(spawn: Spawn) -> None:
    trains = spawn(1).spawn("trains", Trains)
    trains.train.call_one(1).get(timeout=PATIENCE)
    trains.fail.call_one().get(timeout=PATIENCE)
    # not those of other tests
    spans = {row["name"]: row for row in rows("spans") if row["file"] == __file__}
    assert list(spans) == ["forward", "Trains.backward", "inner", "failing"]
    assert (
        json.loads(spans["forward"]["fields_json"]) == {"batch": 0}
        and spans["forward"]["parent_id"] is None
    )
    assert spans["inner"]["parent_id"] == spans["Trains.backward"]["id"]
    assert "on purpose" in spans["failing"]["fields_json"]
    assert spans["forward"]["file"] == __file__ and spans["forward"]["line"] > 0
    inner = spans["inner"]["process_id"], spans["inner"]["id"]
    events = [
        row["event_type"] for row in rows("span_events") if (row["process_id"], row["id"]) == inner
    ]
    assert events == ["enter", "exit", "close"]


def test_the_names_of_monarch_lead_to_the_same() -> None:
    import monarch.actor
    import monarch.telemetry

    assert monarch.actor.get_meter() is monarch.telemetry.get_meter()
    assert isinstance(monarch.actor.span("x"), monarch.telemetry.span)
    assert monarch.actor.traced(len)("four") == 4


def test_coroutines_are_traced_side_by_side(spawn: Spawn) -> None:
    spawn(1).spawn("trains", TrainsAsync).train.call_one().get(timeout=PATIENCE)
    found = [row for row in rows("spans") if row["name"] == "slow"]
    assert [row["parent_id"] for row in found] == [None, None]
    closed = {
        (row["process_id"], row["id"])
        for row in rows("span_events")
        if row["event_type"] == "close"
    }
    assert {(row["process_id"], row["id"]) for row in found} <= closed


def test_steps_tell_each_rank_and_how_long_its_last_step_took(spawn: Spawn) -> None:
    trains = spawn({"gpus": 2}).spawn("trains", Trains)
    trains.train.call(3).get(timeout=PATIENCE)
    found = sorted(rows("steps"), key=lambda row: (row["rank"], row["step"]))
    assert [(row["rank"], row["step"], row["duration_us"] is None) for row in found] == [
        (rank, number, number == 0) for rank in range(2) for number in range(3)
    ]
    assert {row["actor_id"] for row in found} <= {
        row["id"] for row in rows("actors") if row["name"] == "trains"
    }
    assert {row["total"] for row in found} == {3}
    with pytest.raises(TypeError, match="step\\(\\) takes the number of the step, got 'one'"):
        step("one")  # type: ignore[arg-type]  # what is tested
