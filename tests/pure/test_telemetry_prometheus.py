"""The text for Prometheus, checked with its own parser."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from monarch.telemetry.answer import Collected
from monarch.telemetry.prometheus import SCRAPED, exposition
from monarch.telemetry.tables import TABLES

parser = pytest.importorskip(
    "prometheus_client.parser", reason="prometheus_client is not installed"
)


def metric(name: str, **values: Any) -> dict[str, Any]:
    attributes = json.dumps(values.pop("attributes", {}))
    resource = json.dumps({"process.pid": 7, "proc_id": "11"})
    return {
        "name": name,
        "unit": "",
        "scope_name": "mine",
        "attributes_json": attributes,
        "resource_attributes_json": resource,
        **values,
    }


def collected(silent: dict[str, str] | None = None, **tables: list[dict[str, Any]]) -> Collected:
    columns = {
        table: {
            name: [row.get(name) for row in tables.get(table, [])] for name in TABLES[table].columns
        }
        for table in SCRAPED
    }
    return Collected(columns, silent or {}, {})


def samples(found: Collected) -> dict[tuple[str, str], list[Any]]:
    """Each sample by the type and name of its metric, as Prometheus reads it."""
    text = exposition(found)
    parsed: dict[tuple[str, str], list[Any]] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            parsed.setdefault((family.type, sample.name), []).append((sample.labels, sample.value))
    return parsed


PROC = {
    "id": 11,
    "mesh": "trainers",
    "rank": 3,
    "pid": 7,
    "host_id": 5,
    "rss_bytes": 4096,
    "cpu_seconds": 1.5,
}
HOST = {"id": 5, "machine": "h5", "address": "a5", "memory_bytes": 1 << 40}
PLACE = {"mesh": "trainers", "rank": "3", "pid": "7", "machine": "h5", "otel_scope_name": "mine"}


def test_metrics_have_the_type_unit_and_place_that_they_have_in_tables() -> None:
    read = samples(
        collected(
            procs=[PROC],
            hosts=[HOST],
            metric_sums=[
                metric(
                    "samples.seen",
                    is_monotonic=True,
                    sum_i64=2**60,
                    attributes={"data.split": "train", "epoch": 2},
                ),
                metric("free", unit="By", is_monotonic=False, sum_f64=-0.5),
            ],
            metric_gauges=[metric("loss", value_f64=math.inf), metric("2nd", value_u64=5)],
        )
    )
    assert read["counter", "samples_seen_total"] == [
        ({**PLACE, "data_split": "train", "epoch": "2"}, 2**60)
    ]
    assert read["gauge", "free_bytes"] == [(PLACE, -0.5)]
    assert read["gauge", "loss"] == [(PLACE, math.inf)] and read["gauge", "_2nd"] == [(PLACE, 5)]
    own = {"mesh": "trainers", "rank": "3", "pid": "7", "machine": "h5"}
    assert read["gauge", "monarch_proc_resident_memory_bytes"] == [(own, 4096)]
    assert read["counter", "monarch_proc_cpu_seconds_total"] == [(own, 1.5)]
    assert read["gauge", "monarch_host_memory_bytes"] == [
        ({"machine": "h5", "address": "a5"}, 1 << 40)
    ]
    assert ("gauge", "monarch_host_load_1m") not in read  # what the kernel has not told


def test_buckets_of_histograms_add_up() -> None:
    took = metric(
        "took",
        unit="ms",
        count=6,
        sum_f64=9.5,
        bounds_json="[1, 2.5]",
        bucket_counts_json="[1, 2, 3]",
    )
    read = samples(collected(metric_histograms=[took]))
    buckets = [
        (labels["le"], value) for labels, value in read["histogram", "took_milliseconds_bucket"]
    ]
    assert buckets == [("1", 1), ("2.5", 3), ("+Inf", 6)]
    assert [value for _, value in read["histogram", "took_milliseconds_sum"]] == [9.5]
    assert [value for _, value in read["histogram", "took_milliseconds_count"]] == [6]


def test_texts_of_programs_break_no_line_and_two_meanings_of_a_name_are_two_metrics() -> None:
    bad = 'a "quoted" \\ text\nof two lines'
    read = samples(
        collected(
            {"h1": bad},
            metric_gauges=[metric("x", value_i64=1, attributes={"text": bad, "": bad})],
            metric_histograms=[
                metric("x", count=0, sum_i64=0, bounds_json="[]", bucket_counts_json="[0]")
            ],
        )
    )
    [(labels, _)] = read["gauge", "x"]
    assert labels["text"] == bad and labels["_"] == bad and labels["pid"] == "7"
    assert ("histogram", "x_histogram_count") in read
    assert read["gauge", "monarch_silent"] == [({"who": "h1", "why": bad}, 1)]


def test_a_series_is_there_once_and_programs_overwrite_no_identity() -> None:
    attributes = {"rank": 9, "le": "x", "a.b": "1", "a_b": "2"}
    seen = metric("seen", is_monotonic=True, sum_i64=2, attributes=attributes)
    handled = {
        "proc_id": 11,
        "actor": "twin",
        "rank": 0,
        "endpoint": "add",
        "count": 3,
        "failed": 0,
    }
    read = samples(
        collected(procs=[PROC], hosts=[HOST], metric_sums=[seen, seen], handled=[handled, handled])
    )
    labels = {**PLACE, "exported_rank": "9", "exported_le": "x", "a_b": "1;2"}
    assert read["counter", "seen_total"] == [(labels, 4)]
    [(_, count)] = read["counter", "monarch_messages_handled_total"]
    assert count == 6
