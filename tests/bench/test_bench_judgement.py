"""Ratios, verdicts, medians and floors."""

from __future__ import annotations

import pytest
from benchmarks import targets
from benchmarks.catalog import FLOOR_WORKLOAD, WORKLOADS, select
from benchmarks.results import Side, floor_of, merge_extras
from benchmarks.targets import TARGETS, Target, ratio, verdict
from benchmarks.workloads._harness import Options, latency, percentile, rate

from bench.bench_samples import row, side


def test_the_ratio_of_a_latency_is_how_many_times_shorter_ours_is() -> None:
    assert ratio("lower", this=50.0, other=500.0) == 10


def test_the_ratio_of_a_rate_is_how_many_times_higher_ours_is() -> None:
    assert ratio("higher", this=500.0, other=50.0) == 10


@pytest.mark.parametrize(("this", "other"), [(None, 1.0), (1.0, None), (0.0, 1.0), (1.0, 0.0)])
def test_there_is_no_ratio_without_a_value_on_both_sides(
    this: float | None, other: float | None
) -> None:
    assert ratio("lower", this, other) is None
    assert ratio("higher", this, other) is None


@pytest.mark.parametrize(
    ("times", "this", "floor", "wanted"),
    [
        (4.9, 90.0, 20.0, "not met"),
        (5.0, 90.0, 20.0, "must met"),
        (10.0, 41.0, 20.0, "must met"),  # ten times, but above two floors
        (10.0, 40.0, 20.0, "met"),
        (10.0, 90.0, None, "met"),  # an unknown floor is nobody's fault
        (None, 90.0, 20.0, "-"),
    ],
)
def test_a_verdict_asks_for_the_ratio_and_for_the_floor(
    times: float | None, this: float, floor: float | None, wanted: targets.Verdict
) -> None:
    assert verdict(Target(must=5, should=10, should_floors=2), this, times, floor) == wanted


def test_a_verdict_can_ask_for_a_value_below_a_limit() -> None:
    target = Target(must=10, should_below=1.0)
    assert verdict(target, 0.99, 12, None) == "met"
    assert verdict(target, 1.0, 12, None) == "must met"


def test_a_workload_without_a_target_is_not_judged() -> None:
    assert verdict(None, 1.0, 100, None) == "-"


def test_a_row_compares_the_medians_of_its_rounds() -> None:
    measured = row("call_8", side(100.0, 1000.0, 110.0), side(2200.0, 2100.0, 9000.0))
    assert measured.ratio == 20
    assert measured.verdict == "met"


def test_a_row_where_ours_failed_says_failed_and_has_no_ratio() -> None:
    measured = row("call_8", side(100.0, error="round 2: exit status 1"), side(2200.0))
    assert (measured.ratio, measured.verdict) == (None, "failed")


def test_a_row_where_the_other_failed_is_not_judged() -> None:
    measured = row("call_8", side(100.0), side(error="round 1: no end within 120 s"))
    assert (measured.ratio, measured.verdict) == (None, "-")


def test_a_quick_run_is_not_judged() -> None:
    assert row("call_8", side(100.0), side(2200.0), judged=False).verdict == "-"


def test_extras_merge_to_the_median_of_numbers_and_the_last_text() -> None:
    merged = merge_extras(
        [{"p99": 1.0, "payload": "numpy"}, {"p99": 9.0}, {"p99": 2.0, "payload": "torch"}]
    )
    assert merged == {"p99": 2.0, "payload": "torch"}


def test_the_copy_floor_is_the_measured_copy_times_the_size() -> None:
    workload = select(["cast_16mb_8"])[0]
    assert floor_of(workload, Side((20.0,), {"copy_ms_per_mib": 0.5})) == 8.0
    assert floor_of(workload, Side((20.0,), {})) is None


def test_the_ping_floor_is_the_median_round_trip_and_some_workloads_have_no_floor() -> None:
    assert floor_of(FLOOR_WORKLOAD, side(30.0, 20.0, 25.0)) == 25.0
    assert floor_of(select(["one_way"])[0], side(30.0)) is None


def test_every_target_is_that_of_a_workload_and_the_core_group_has_one_each() -> None:
    assert {workload.name for workload in WORKLOADS if workload.group == "core"} < set(TARGETS)
    assert set(TARGETS) < {workload.name for workload in WORKLOADS}


def test_groups_and_names_select_each_workload_once_in_catalogue_order() -> None:
    payload = [w.name for w in WORKLOADS if w.group == "payload"]
    assert [w.name for w in select(["call_8", "payload", "call_8"])] == ["call_8", *payload]
    assert select(["all"]) == WORKLOADS
    with pytest.raises(ValueError, match="call_nine"):
        select(["call_nine"])


def test_percentiles_are_samples_by_nearest_rank() -> None:
    samples = [float(number) for number in range(100, 0, -1)]
    assert (percentile(samples, 90), percentile(samples, 99), percentile([7.0], 99)) == (
        90.0,
        99.0,
        7.0,
    )


def test_latencies_and_rates_come_in_the_unit_that_was_asked_for() -> None:
    assert latency([0.001, 0.003, 0.002], unit="ms").value == pytest.approx(2.0)
    assert rate(4000, [1.0, 0.5, 0.25]).value == 8000


def test_scale_multiplies_counts_down_to_a_least_number() -> None:
    assert [Options(scale).count(1000, least=20) for scale in (1, 0.1, 0.001)] == [1000, 100, 20]
