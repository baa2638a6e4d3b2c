"""Metrics of one process: what instruments add up, refuse, and never keep."""

from __future__ import annotations

import itertools
import pickle
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarch.telemetry.messages import Durations
from monarch.telemetry.metrics import BOUNDS, MOST_ATTRIBUTES, OVERFLOW, Meter, Observation, get_meter


def test_counters_add_up_for_each_set_of_attributes_in_any_order() -> None:
    counter = Meter("test").create_counter("seen", "1", "what was seen")
    counter.add(1)
    counter.add(2.5, {"a": 1, "b": "x"})
    counter.add(1, {"b": "x", "a": 1})
    assert counter.values() == {(): 1, (("a", 1), ("b", "x")): 3.5}
    assert (counter.name, counter.unit, counter.description) == ("seen", "1", "what was seen")


def test_what_is_no_amount_is_refused_by_name() -> None:
    meter = Meter("test")
    with pytest.raises(ValueError, match="counter up only goes up: got -1"):
        meter.create_counter("up").add(-1)
    with pytest.raises(TypeError, match="metric down: a number is wanted, not 'x'"):
        meter.create_up_down_counter("down").add("x")  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TypeError, match="metric at: a number is wanted, not True"):
        meter.create_gauge("at").set(True)
    with pytest.raises(ValueError, match="metric up is a Counter already, and can't be a Gauge, too"):
        meter.create_gauge("up")
    with pytest.raises(ValueError, match="histogram h: the bounds of its buckets must rise"):
        meter.create_histogram("h", explicit_bucket_boundaries_advisory=[2, 1])
    assert meter.create_counter("up") is meter.create_counter("up")


def test_an_instrument_keeps_a_bounded_number_of_sets_of_attributes() -> None:
    counter = Meter("test").create_counter("ids")
    for number in range(MOST_ATTRIBUTES + 500):
        counter.add(1, {"id": number})
    values = counter.values()
    assert len(values) == MOST_ATTRIBUTES + 1 and values[OVERFLOW] == 500


@given(st.lists(st.one_of(st.integers(-100, 20_000), st.floats(-100, 20_000)), min_size=1, max_size=50))
def test_a_histogram_counts_each_value_in_the_bucket_of_its_upper_bound(values: list[Any]) -> None:
    histogram = Meter("test").create_histogram("took")
    for value in values:
        histogram.record(value)
    found = histogram.values()[()]
    edges = [float("-inf"), *BOUNDS, float("inf")]
    wanted = [sum(low < value <= high for value in values) for low, high in itertools.pairwise(edges)]
    assert found.buckets == wanted
    assert (found.values, found.min, found.max) == (len(values), min(values), max(values))
    assert found.sum == pytest.approx(sum(values))


def _nothing(options: object) -> list[Observation]:
    return []


def test_an_instrument_that_is_sent_is_the_one_of_its_name_there() -> None:
    meter = get_meter("sent")
    counter, histogram = (
        meter.create_counter("c"),
        meter.create_histogram("h", explicit_bucket_boundaries_advisory=[1, 2]),
    )
    gauge = meter.create_observable_gauge("g", [_nothing])
    assert [pickle.loads(pickle.dumps(each)) for each in (meter, counter, histogram, gauge)] == [
        meter, counter, histogram, gauge,
    ]  # fmt: skip


def test_threads_lose_no_count() -> None:
    counter = Meter("test").create_counter("shared")

    def add() -> None:
        for _ in range(5_000):
            counter.add(1, {"k": 1})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.values() == {(("k", 1),): 20_000}


def test_observable_instruments_ask_and_one_that_raises_spoils_no_other(caplog: pytest.LogCaptureFixture) -> None:
    def broken(options: object) -> list[Observation]:
        raise OSError("no such device")

    def works(options: object) -> list[Observation]:
        return [Observation(40.5, {"gpu": 0}), Observation(41)]

    gauge = Meter("test").create_observable_gauge("temperature", [broken, works])
    assert gauge.values() == {(("gpu", 0),): 40.5, (): 41}
    assert "the callback of metric temperature raised: OSError('no such device')" in caplog.text


@given(st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(1, 100)), min_size=1, max_size=20))
def test_durations_count_by_bits_with_their_weights(seen: list[tuple[int, int]]) -> None:
    durations = Durations()
    for duration, weight in seen:
        durations.add(duration, weight)
    assert sum(durations.counts) == sum(weight for _, weight in seen)
    assert all(durations.counts[duration.bit_length()] >= weight for duration, weight in seen)
    twice = Durations()
    twice.join(durations)
    twice.join(durations)
    assert (twice.total, sum(twice.counts)) == (2 * durations.total, 2 * sum(durations.counts))
    assert (durations.least, durations.most) == (twice.least, twice.most) == (min(seen)[0], max(seen)[0])
