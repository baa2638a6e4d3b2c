"""Metrics of one process: what instruments add up, refuse, and never keep."""

from __future__ import annotations

import contextvars
import gc
import itertools
import pickle
import threading
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.waiting import PATIENCE
from monarch.telemetry import spans, step
from monarch.telemetry.instruments import _typed
from monarch.telemetry.messages import Durations
from monarch.telemetry.metrics import (
    BOUNDS,
    MOST_ATTRIBUTES,
    OVERFLOW,
    Meter,
    Observation,
    get_meter,
)


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
    with pytest.raises(
        ValueError, match="metric up is a Counter already, and can't be a Gauge, too"
    ):
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


@given(
    st.lists(st.one_of(st.integers(-100, 20_000), st.floats(-100, 20_000)), min_size=1, max_size=50)
)
def test_a_histogram_counts_each_value_in_the_bucket_of_its_upper_bound(values: list[Any]) -> None:
    histogram = Meter("test").create_histogram("took")
    for value in values:
        histogram.record(value)
    found = histogram.values()[()]
    edges = [float("-inf"), *BOUNDS, float("inf")]
    wanted = [
        sum(low < value <= high for value in values) for low, high in itertools.pairwise(edges)
    ]
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


def test_observable_instruments_ask_and_one_that_raises_spoils_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
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
    assert (
        (durations.least, durations.most)
        == (twice.least, twice.most)
        == (min(seen)[0], max(seen)[0])
    )


class _Counts:
    """Counts when it is compared, and when it is freed, as a finalizer may at any time."""

    def __init__(self, counter: Any) -> None:
        self._counter = counter

    def __hash__(self) -> int:
        self._counter.add(1)
        return 1


def test_a_finalizer_may_count_while_its_thread_counts() -> None:
    counter = Meter("test").create_counter("freed")
    thread = threading.Thread(target=counter.add, args=(1, {"who": _Counts(counter)}), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert counter.values()[()] >= 1


def test_a_number_of_more_than_64_bits_is_refused_and_a_sum_may_have_more() -> None:
    counter = Meter("test").create_counter("large")
    for number in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(ValueError, match="metric at: an integer of 64 bits is wanted, not "):
            Meter("test").create_gauge("at").set(number)
    with pytest.raises(ValueError, match=r"step\(\) takes a number of 64 bits, got"):
        step(1 << 63)
    for _ in range(2):
        counter.add((1 << 63) - 1)
    assert _typed(counter.values()[()]) == (2.0**64, None) and _typed(7) == (None, 7)


def test_an_observable_that_is_made_again_asks_the_new_functions() -> None:
    meter = Meter("test")
    for value in (1, 2):
        gauge = meter.create_observable_gauge(
            "now",
            [lambda options, value=value: [Observation(value)]],  # type: ignore[misc]
        )
    assert meter.create_observable_gauge("now") is gauge
    assert gauge.values() == {(): 2}


def test_an_observable_whose_last_call_still_runs_is_left_out() -> None:
    seen = []

    def asks_again(options: object) -> list[Observation]:
        seen.append(gauge.values())
        return [Observation(1)]

    gauge = Meter("test").create_observable_gauge("held", [asks_again])
    assert gauge.values() == {(): 1} and seen == [{}]
    assert gauge.values() == {(): 1}


def _fields(name: str) -> dict[str, Any]:
    [found] = [each for each in spans._spans if each.name == name]
    return found.fields


def test_a_span_keeps_no_object_and_shows_what_can_not_be_shown() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise OSError("no text")

    broken = Broken()
    gone = weakref.ref(broken)
    with spans.span("kept", broken=broken, long=["x" * 2_000], count=3, none=None):
        pass
    del broken
    gc.collect()
    assert gone() is None
    fields = _fields("kept")
    assert (
        fields["broken"] == "<Broken, whose repr raised OSError>" and len(fields["long"]) == 1_000
    )
    assert (fields["count"], fields["none"]) == (3, None)


def test_a_traced_function_has_only_the_errors_that_it_raises() -> None:
    @spans.traced(name="works")
    def works() -> None: ...

    @spans.traced(name="fails")
    def fails() -> None:
        raise OSError("of its own")

    try:
        raise ValueError("of the caller")
    except ValueError:
        works()
        with pytest.raises(OSError, match="of its own"):
            fails()
    assert _fields("works") == {} and "of its own" in _fields("fails")["error"]


def test_a_span_may_be_left_in_another_context() -> None:
    entered = spans.span("elsewhere")
    contextvars.copy_context().run(entered.__enter__)
    entered.__exit__(None, None, None)
    assert entered.end is not None
